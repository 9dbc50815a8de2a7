//! Functions that the algorithms share: the horizon, quotas without a burst, and exact integers.

use std::time::Duration;

use crate::core::quota::{Quota, QuotaError, Quotas};

pub(crate) const DEFAULT_HORIZON: Duration = Duration::from_secs(60);

/// The longest horizon that can be set, and the default of the longest debt.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The limit of exact integers: a script computes exactly below it.
pub(crate) const INEXACT: i64 = crate::core::quota::INEXACT as i64;

pub(super) const fn at_most_a_year(time: Duration) -> Duration {
    if time.as_micros() > YEAR.as_micros() { YEAR } else { time }
}

/// Returns the only quota of an algorithm without a burst, or `why` the algorithm cannot follow it.
pub(super) fn without_burst(
    quotas: impl Into<Quotas>,
    why: &'static str,
) -> Result<Quota, QuotaError> {
    checked_burst(quotas.into().one()?, why)
}

pub(super) fn checked_burst(quota: Quota, why: &'static str) -> Result<Quota, QuotaError> {
    if quota.burst_size() == quota.limit() { Ok(quota) } else { Err(QuotaError(why)) }
}

/// Implements the methods of [`Algorithm`](super::Algorithm) that read a field of the algorithm or
/// of its rule.
macro_rules! of_one_quota {
    () => {
        fn quota(&self) -> crate::core::quota::Quotas {
            self.quota.into()
        }

        fn horizon(rule: &Self::Rule) -> i64 {
            rule.horizon
        }
    };
}

/// Implements the setter of the horizon. The given lines are added to its documentation.
macro_rules! horizon_setter {
    ($(#[$doc:meta])+) => {
        /// Sets the longest wait that is reserved for any charge, at most 365 days. Default: 60 s.
        $(#[$doc])+
        pub const fn horizon(self, horizon: std::time::Duration) -> Self {
            Self { horizon: crate::algorithm::common::at_most_a_year(horizon), ..self }
        }
    };
}

macro_rules! max_debt_setter {
    () => {
        /// Sets the longest time for which a key may owe units, at most 365 days. Default: 365
        /// days.
        ///
        /// A [settlement](crate::Limiter::settle) may take more units than were charged, and a
        /// [penalty](crate::LimiterExt::penalize) more than fit. Then no charge fits until they
        /// have refilled. Units that would be owed for longer than this time are not taken:
        /// [`Settled`](crate::future::Settled) and
        /// [`Decision::not_taken`](crate::Decision::not_taken) tell how many.
        ///
        /// Give all processes the same horizon. In a bucket or a budget, a process with a shorter
        /// horizon cuts a debt that another one left to its own; a quota whose burst refills sooner
        /// cuts it, too.
        pub const fn max_debt(self, max_debt: std::time::Duration) -> Self {
            Self { max_debt: crate::algorithm::common::at_most_a_year(max_debt), ..self }
        }
    };
}

/// The time of one unit of a quota: `numerator / denominator` µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) numerator: i64,
    pub(super) denominator: i64,
}

impl Unit {
    pub(super) fn of(quota: Quota) -> Result<Self, QuotaError> {
        let (numerator, denominator) = quota.unit()?;
        Ok(Self { numerator: exact(numerator), denominator: exact(denominator) })
    }

    /// True if none ever comes: a quota of 0.
    pub(super) fn is_none(self) -> bool {
        self.numerator >= INEXACT
    }

    pub(super) fn sent(numerator: i64, denominator: i64) -> Option<Self> {
        (numerator > 0 && denominator > 0).then_some(Self { numerator, denominator })
    }

    /// Returns the time of `units`: whole µs, and the rest over the denominator.
    #[inline]
    pub(super) fn time(self, units: i64) -> (i64, i64) {
        let product = units * self.numerator;
        (product / self.denominator, product % self.denominator)
    }

    /// Returns the instant that is the time of `units` after `start`.
    #[inline]
    pub(super) fn after(self, start: (i64, i64), units: i64) -> (i64, i64) {
        let time = self.time(units);
        let part = start.1 + time.1;
        let carry = i64::from(part >= self.denominator);
        (start.0 + time.0 + carry, part - carry * self.denominator)
    }

    /// Returns the instant that is the time of `units` before `end`, but not before `now`. Units of
    /// which the time would not be exact count as those of the longest exact time.
    pub(super) fn before(self, end: (i64, i64), units: i64, now: i64) -> (i64, i64) {
        let time = self.time(self.exact_units(units));
        let borrow = i64::from(end.1 < time.1);
        let (whole, part) = (end.0 - time.0 - borrow, end.1 - time.1 + borrow * self.denominator);
        (whole, part).max((now, 0))
    }

    pub(super) fn exact_units(self, units: i64) -> i64 {
        units.min((INEXACT - 1) / self.numerator)
    }

    /// Returns the units that refill between two instants, each in whole µs and a rest over the
    /// denominator of a unit's time. It is cut where a product would not be exact.
    #[inline]
    pub(super) fn between(self, from: (i64, i64), to: (i64, i64)) -> i64 {
        let whole = (to.0 - from.0).clamp(-1, (INEXACT - 1 - to.1) / self.denominator);
        (whole * self.denominator + to.1 - from.1).max(0) / self.numerator
    }
}

/// Converts a duration to µs: one of at most 365 days, or the period of a quota.
pub(super) const fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}

/// Converts a number of a [`Quota`](crate::Quota), which is at most 2^53.
pub(crate) const fn exact(number: u64) -> i64 {
    number.cast_signed()
}

#[cfg(test)]
mod tests;
