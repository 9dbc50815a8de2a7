//! The questions to an algorithm about a key, and its answers, as numbers. Times are in µs.

use crate::core::mark::Mark;

/// A charge as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check<'a> {
    /// The units asked for; 0 peeks.
    pub cost: i64,
    /// The longest wait that may be reserved, in µs; at most the horizon.
    pub max_wait: i64,
    /// The units that stay free: one number for all quotas, or one for each. Empty: none.
    pub keep_free: &'a [i64],
    /// The instants at which pauses of the key end, which are later than now: one for all quotas,
    /// or one for each, 0 if its key is not paused. Empty: no pause.
    pub paused: &'a [i64],
}

impl<'a> Check<'a> {
    /// Takes nothing.
    pub(crate) const PEEK: Self = Self::new(0, 0);

    /// Asks for `cost` units, with the longest wait that may be reserved, and keeps none free.
    #[must_use]
    pub const fn new(cost: i64, max_wait: i64) -> Self {
        Self { cost, max_wait, keep_free: &[], paused: &[] }
    }

    /// Sets the units that stay free: one number for all quotas, or one for each.
    #[must_use]
    pub const fn keeping(self, keep_free: &'a [i64]) -> Self {
        Self { keep_free, ..self }
    }

    /// Sets the instants at which pauses of the key end: one for all quotas, or one for each.
    #[must_use]
    pub const fn paused_until(self, paused: &'a [i64]) -> Self {
        Self { paused, ..self }
    }

    /// Returns the instant at which the last pause ends. 0 if there is none.
    #[inline]
    pub(super) fn pause_end(&self) -> i64 {
        self.paused.iter().copied().fold(0, i64::max)
    }
}

/// Returns the units that stay free of the only quota.
#[inline]
pub(super) fn kept(keep_free: &[i64]) -> i64 {
    keep_free.first().copied().unwrap_or(0)
}

/// Returns the numbers of the quota at `index`, as a list for it alone. `numbers` has one for all
/// quotas, or one for each.
#[inline]
pub(super) fn kept_of(numbers: &[i64], index: usize) -> &[i64] {
    match numbers {
        [] | [_] => numbers,
        each => each.get(index..=index).unwrap_or_default(),
    }
}

/// Units that a charge takes, in µs since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take<'a> {
    /// The instant at which the units fit.
    pub at: i64,
    /// The units.
    pub cost: i64,
    /// The instant of the decision.
    pub now: i64,
    /// True for a member of several, of which another may have determined the instant `at`. If that
    /// is later than now, the mark also holds the state before, so that a refund can restore it.
    pub has_others: bool,
    /// The units that stay free, as a [`Check`] has them.
    pub keep_free: &'a [i64],
}

/// The decision of a step. Waits are in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The charge fits now.
    Allow,
    /// The charge is taken, for an instant this much later.
    Wait(i64),
    /// The charge is not taken; it would fit this much later.
    Deny(i64),
    /// The charge can never fit.
    Never,
}

/// The figures of a key that a decision reports. With several quotas, the least number and the
/// latest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The units that would be admitted right now.
    pub remaining: i64,
    /// The time until the whole quota is available again, in µs.
    pub reset_after: i64,
}

impl Report {
    /// The report about a key of which nothing is taken.
    pub(super) const fn full(units: i64) -> Self {
        Self { remaining: units, reset_after: 0 }
    }

    /// The report about the same key while it is paused until an instant. 0: it is not.
    #[inline]
    pub(super) fn paused(self, now: i64, until: i64) -> Self {
        match until > now {
            true => Self { remaining: 0, reset_after: self.reset_after.max(until - now) },
            false => self,
        }
    }
}

/// The separate answer of one of several quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaAnswer {
    /// The decision of this quota.
    pub verdict: Verdict,
    /// The report about the key under this quota.
    pub report: Report,
}

/// A refund: the units of a reservation to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund<'a> {
    /// The units to give back, 1 to `cost`. In a settlement also 0 if all units were used, and
    /// below 0 if more were used.
    pub units: i64,
    /// The units that the reservation took.
    pub cost: i64,
    /// The mark that the reservation keeps.
    pub mark: &'a Mark,
}

impl<'a> Refund<'a> {
    /// A refund of all units of a reservation.
    #[must_use]
    pub const fn of_all(cost: i64, mark: &'a Mark) -> Self {
        Self { units: cost, cost, mark }
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.units == self.cost
    }

    /// The units that the reservation keeps.
    pub(super) const fn kept(&self) -> i64 {
        self.cost - self.units
    }
}

/// The answer about a charge: of a step in this process, or of a script on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ruling {
    /// The decision.
    pub verdict: Verdict,
    /// The report about the key.
    pub report: Report,
    /// The separate answer of each of several quotas, in order; empty for one quota.
    pub members: Box<[QuotaAnswer]>,
    /// The mark of the state that the step wrote; `None` if it wrote none. Empty if nothing was
    /// reserved.
    pub mark: Option<Mark>,
    /// The units of a penalty that could not be taken. With several quotas, the largest number.
    pub not_taken: i64,
    /// The instant at which the last pause of the key ends, 0 if it is not paused.
    pub paused_until: i64,
    /// True if the key is blocked: then nothing else is known of it.
    pub is_blocked: bool,
}
