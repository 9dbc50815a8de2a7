//! What an algorithm is asked about a key, and what it answers, in numbers. Times are in µs.

use super::Mark;

/// One charge, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The units asked for; 0 peeks.
    pub cost: i64,
    /// The longest wait that may be reserved, in µs; at most the horizon.
    pub max_wait: i64,
}

/// What a step decided. Waits are in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fits now.
    Allow,
    /// Taken at a later instant.
    Wait(i64),
    /// Not taken; it would fit then.
    Deny(i64),
    /// Can never fit.
    Never,
}

/// How a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The units that would be admitted right now.
    pub remaining: i64,
    /// The time until the key is as good as new, in µs.
    pub reset_after: i64,
}

/// Units of a reservation that are to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund<'a> {
    /// The units to give back, 1 to `cost`. Other numbers give nothing back.
    pub units: i64,
    /// The units that the reservation took.
    pub cost: i64,
    /// The mark that the reservation keeps.
    pub mark: &'a Mark,
}

impl<'a> Refund<'a> {
    /// All units of a reservation.
    #[must_use]
    pub const fn whole(cost: i64, mark: &'a Mark) -> Self {
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

/// What was decided about a charge: by a step in this process, or by a script on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was decided.
    pub verdict: Verdict,
    /// How the key stands.
    pub report: Report,
    /// The index of the quota that refuses or delays, else of the one that has least left.
    pub quota_index: usize,
    /// The mark of the state that the step wrote; `None` if it wrote none. A script always answers
    /// with the mark of the state as it is.
    pub mark: Option<Mark>,
}
