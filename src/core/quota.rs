//! Quotas: a limit per period, and a burst.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The limit of exact integers: a Lua number, which is a double, holds all integers below it
/// exactly.
pub(crate) const INEXACT: u64 = 1 << 53;

/// The longest period of a quota, in µs: about 35 years.
const MAX_MICROS: u128 = 1 << 50;

const MAX_LIMIT: u64 = 1 << 50;

/// A limit: `limit` units per `period`, at most `burst` of them at once.
///
/// A quota is checked when it is made. In a `const`, an invalid quota does not compile. For quotas
/// from a file, [`Quota::try_new`] returns the reason. [`Quota::none`] is that of a suspended plan.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::Quota;
///
/// const API: Quota = Quota::per_second(50).burst(100);
/// assert_eq!((API.limit(), API.burst_size()), (50, 100));
///
/// let refused = Quota::try_new(50, Duration::ZERO).unwrap_err();
/// assert_eq!(refused.to_string(), "the period is 0");
/// ```
///
/// The period is counted in whole microseconds, from 1 µs to 2^50 µs (35 years). The default burst
/// is the limit. Where the products of `burst` and `period / limit` are not exact, a unit takes
/// longer by less than a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Quota {
    limit: u64,
    /// A whole number of microseconds.
    period: Duration,
    burst: u64,
}

impl Quota {
    /// `limit` units per second.
    ///
    /// # Panics
    ///
    /// As [`Quota::new`].
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` units per minute.
    ///
    /// # Panics
    ///
    /// As [`Quota::new`].
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` units per hour.
    ///
    /// # Panics
    ///
    /// As [`Quota::new`].
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(3_600))
    }

    /// `limit` units per day of 24 hours.
    ///
    /// # Panics
    ///
    /// As [`Quota::new`].
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(86_400))
    }

    /// `limit` units per `period`.
    ///
    /// # Panics
    ///
    /// If [`Quota::try_new`] returns an error, or if the limit is 0; in a `const`, at compile time.
    #[track_caller]
    pub const fn new(limit: u64, period: Duration) -> Self {
        match Self::try_new(limit, period) {
            Ok(quota) => quota.some(),
            Err(error) => panic!("{}", error.0),
        }
    }

    /// No units at all: the quota of a suspended plan. Every charge of at least one unit is
    /// refused, without an error and without a time to come back. Units that were taken before
    /// stay taken, and count again when the key has another quota.
    ///
    /// ```
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{Charge, Limiter, Memory, Outcome, Quota};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let api = Memory::new("api", TokenBucket::new(Quota::per_minute(100)));
    /// let suspended = Charge::new("acme").quota(Quota::none());
    /// let refused = api.check(&suspended).await?;
    /// assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None });
    /// assert_eq!(refused.remaining(), Some(0));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// **0 is not "no limit"**: for that, state no limit. A store is still asked, so
    /// [`FailOpen`](crate::FailOpen) admits while it is away.
    pub const fn none() -> Self {
        Self { limit: 0, period: Duration::from_secs(1), burst: 0 }
    }

    /// True if it admits nothing: its limit is 0.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.limit == 0
    }

    /// `limit` units per `period`, or the reason why that is invalid. A limit of 0 admits
    /// [nothing](Quota::none).
    ///
    /// An algorithm may refuse a valid quota: `try_new` of its limiter returns the reason.
    ///
    /// # Errors
    ///
    /// If the period is 0, or not a whole number of microseconds. Also if the period exceeds 2^50
    /// µs, or the limit 2^50 units.
    pub const fn try_new(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        let micros = period.as_micros();
        if micros == 0 {
            return Err(QuotaError("the period is 0"));
        }
        if micros > MAX_MICROS {
            return Err(QuotaError("the period exceeds 2^50 microseconds (35 years)"));
        }
        if !period.subsec_nanos().is_multiple_of(1_000) {
            return Err(QuotaError("the period is not a whole number of microseconds"));
        }
        Self { limit, period, burst: limit }.checked()
    }

    /// `limit` units at the same time, without a period: for
    /// [`Concurrency`](crate::algorithm::Concurrency) alone. Its [`period`](Quota::period) is 0.
    ///
    /// # Panics
    ///
    /// If [`Quota::try_at_once`] returns an error, or if the limit is 0; in a `const`, at compile
    /// time.
    #[track_caller]
    pub const fn at_once(limit: u64) -> Self {
        match Self::try_at_once(limit) {
            Ok(quota) => quota.some(),
            Err(error) => panic!("{}", error.0),
        }
    }

    /// `limit` units at the same time, or the reason why that is invalid. A limit of 0 admits
    /// [nothing](Quota::none).
    ///
    /// # Errors
    ///
    /// If the limit is more than 2^50.
    pub const fn try_at_once(limit: u64) -> Result<Self, QuotaError> {
        Self { limit, period: Duration::ZERO, burst: limit }.checked()
    }

    /// Sets the burst: at most `units` go at once. Default: the limit.
    ///
    /// A bucket with the default burst admits up to twice its limit in a period: the burst at once,
    /// and the limit during the period. `burst(1)` makes an even pace.
    ///
    /// It is for buckets only. A limiter with a window and such a quota is not built.
    ///
    /// # Panics
    ///
    /// If [`Quota::try_burst`] returns an error; in a `const`, at compile time.
    #[track_caller]
    pub const fn burst(self, units: u64) -> Self {
        match self.try_burst(units) {
            Ok(quota) => quota,
            Err(error) => panic!("{}", error.0),
        }
    }

    /// Sets the burst: at most `units` go at once. Or returns the reason why that is invalid.
    ///
    /// # Errors
    ///
    /// If it is 0, or more than 2^50. A quota that admits [nothing](Quota::none) has no burst.
    pub const fn try_burst(self, units: u64) -> Result<Self, QuotaError> {
        Self { burst: units, ..self }.checked()
    }

    /// The units per period.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period. 0 if the quota is of units [at once](Quota::at_once).
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The burst: the most units that may go at once. Default: the limit.
    #[must_use]
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// The time that one unit takes, as a reduced fraction of microseconds.
    pub(crate) fn unit(&self) -> Result<(u64, u64), QuotaError> {
        if self.is_none() {
            // No unit ever comes.
            return Ok((INEXACT, 1));
        }
        let period = self.period.as_micros() as u64;
        let divisor = gcd(period, self.limit);
        let (mut p, mut l) = (period / divisor, self.limit / divisor);
        let largest = INEXACT / self.burst;
        if p > largest {
            // Slower, so that nothing beyond the quota is admitted.
            let smaller = u128::from(largest) * u128::from(l) / u128::from(p);
            (p, l) = ((smaller * u128::from(p)).div_ceil(l.into()) as u64, smaller as u64);
            if l == 0 || p < 1_000_000 {
                return Err(QuotaError(
                    "the burst is too large for the time of a unit to be exact",
                ));
            }
        }
        if u128::from(self.burst) * u128::from(p) > MAX_MICROS * u128::from(l) {
            return Err(QuotaError("burst * period / limit exceeds 2^50 microseconds (35 years)"));
        }
        Ok((p, l))
    }

    /// The time in which `units` come, rounded up.
    #[doc(hidden)]
    #[must_use]
    pub fn time_of(&self, units: u64) -> Duration {
        let exact = (self.period.as_micros() as u64, self.limit.max(1));
        let (p, l) = self.unit().ok().filter(|_| !self.is_none()).unwrap_or(exact);
        let micros = (u128::from(units) * u128::from(p)).div_ceil(l.into());
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The same, unless it admits nothing.
    #[track_caller]
    const fn some(self) -> Self {
        assert!(
            !self.is_none(),
            "a quota of 0 admits nothing: if you mean that, write Quota::none()"
        );
        self
    }

    const fn checked(self) -> Result<Self, QuotaError> {
        if self.is_none() {
            return Ok(Self { burst: 0, ..self });
        }
        if self.burst == 0 {
            return Err(QuotaError("a burst of 0 admits nothing"));
        }
        if self.limit > MAX_LIMIT || self.burst > MAX_LIMIT {
            return Err(QuotaError("more than 2^50 units"));
        }
        Ok(self)
    }
}

/// One quota, or one quota for each algorithm of a tuple.
///
/// A limiter of your own reads the quotas that a charge states:
///
/// ```
/// use tower_sluice::{Charge, Quota};
///
/// let charge = Charge::new("alice").quota((Quota::per_second(10), Quota::per_day(1_000)));
/// let quotas = charge.own_quota().unwrap();
/// assert_eq!(quotas.as_slice()[0], Quota::per_second(10));
/// let limits: Vec<u64> = quotas.as_slice().iter().map(Quota::limit).collect();
/// assert_eq!(limits, [10, 1_000]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas(Several);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Several {
    One(Quota),
    Many(Arc<[Quota]>),
    /// Each quota with the cost and the wait of its member in a list.
    WithCosts(Arc<WithCosts>),
}

#[derive(Debug, PartialEq, Eq)]
struct WithCosts {
    quotas: Box<[Quota]>,
    stated: Box<[CostAndWait]>,
}

/// The cost and the longest wait of one member of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostAndWait {
    pub(crate) cost: i64,
    /// In µs.
    pub(crate) max_wait: i64,
}

impl Quotas {
    /// The quotas, in order.
    pub fn as_slice(&self) -> &[Quota] {
        match &self.0 {
            Several::One(quota) => std::slice::from_ref(quota),
            Several::Many(quotas) => quotas,
            Several::WithCosts(each) => &each.quotas,
        }
    }

    /// Returns the only quota, which has a period.
    pub(crate) fn one(&self) -> Result<Quota, QuotaError> {
        match self.only()? {
            Quota { period: Duration::ZERO, .. } => Err(QuotaError("a quota without a period")),
            quota => Ok(quota),
        }
    }

    pub(crate) fn only(&self) -> Result<Quota, QuotaError> {
        match self.as_slice() {
            [quota] => Ok(*quota),
            _ => Err(QuotaError("more than one quota for an algorithm")),
        }
    }

    /// Adds to each quota the cost and the wait of its member in a list.
    pub(crate) fn with_costs(each: impl IntoIterator<Item = (Quota, CostAndWait)>) -> Self {
        let (quotas, stated): (Vec<_>, Vec<_>) = each.into_iter().unzip();
        Self(Several::WithCosts(Arc::new(WithCosts {
            quotas: quotas.into(),
            stated: stated.into(),
        })))
    }

    /// The same quotas and costs, of which no request is to wait: as units are settled.
    pub(crate) fn without_waits(&self) -> Self {
        let Several::WithCosts(each) = &self.0 else { return self.clone() };
        let settled = |(quota, stated): (&Quota, &CostAndWait)| {
            (*quota, CostAndWait { max_wait: 0, ..*stated })
        };
        Self::with_costs(each.quotas.iter().zip(&each.stated).map(settled))
    }

    /// The quotas alone, without costs and waits of members.
    pub(crate) fn alone(&self) -> Self {
        match &self.0 {
            Several::WithCosts(each) => Self(Several::Many((&*each.quotas).into())),
            _ => self.clone(),
        }
    }

    /// Returns the cost and the longest wait that are stated for one member.
    pub(crate) fn stated(&self, index: usize) -> Option<CostAndWait> {
        match &self.0 {
            Several::WithCosts(each) => each.stated.get(index).copied(),
            _ => None,
        }
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(Several::One(quota))
    }
}

impl From<&[Quota]> for Quotas {
    fn from(quotas: &[Quota]) -> Self {
        match quotas {
            [quota] => (*quota).into(),
            quotas => Self(Several::Many(quotas.into())),
        }
    }
}

impl<const N: usize> From<[Quota; N]> for Quotas {
    fn from(quotas: [Quota; N]) -> Self {
        quotas.as_slice().into()
    }
}

macro_rules! from_tuple {
    ($size:literal: $($member:ident $index:tt),+) => {
        impl From<($(from_tuple!(@ $member),)+)> for Quotas {
            fn from(quotas: ($(from_tuple!(@ $member),)+)) -> Self {
                [$(quotas.$index),+].into()
            }
        }
    };
    (@ $member:ident) => { Quota };
}

for_each_tuple!(from_tuple);

/// The reason why a quota is invalid: see [`Quota::try_new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError(pub(crate) &'static str);

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for QuotaError {}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
