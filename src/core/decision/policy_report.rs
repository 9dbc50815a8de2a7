//! The report of a decision about one policy that took part in it.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::core::{Outcome, Quota};

/// The state of a key under one policy of a [`Decision`](crate::Decision): the policy's name and
/// quota, and what is left.
///
/// A limiter of one quota has one policy, with the limiter's name. A tuple of algorithms has one
/// policy for each quota. [`AllInTurn`](crate::limiter::AllInTurn) and
/// [`AllAtOnce`](crate::redis::AllAtOnce) have the policies of their members.
/// [`LimiterExt::describe`](crate::LimiterExt::describe) gives them other names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyReport<'a> {
    name: &'a str,
    figures: Figures,
}

/// The unit of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Requests, or the unit of the application's costs.
    #[default]
    Requests,
    /// Bytes of the content of messages.
    ContentBytes,
    /// Requests that run at the same time.
    ConcurrentRequests,
}

/// A policy as decisions keep it.
#[derive(Clone, Debug)]
pub(crate) struct DecidedPolicy {
    pub(crate) name: Arc<str>,
    /// Its place among all policies of its limiter, or `KEEPS_NAME`. A charge may leave some
    /// policies out.
    pub(crate) place: usize,
    pub(crate) figures: Figures,
}

/// The place of a policy whose name is not changed by a
/// [`Description`](crate::limiter::Description).
pub(crate) const KEEPS_NAME: usize = usize::MAX;

/// The values of a policy, without its name and its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) quota: Quota,
    /// The outcome under this policy alone.
    pub(crate) outcome: Outcome,
    pub(crate) remaining: Option<u64>,
    /// The units that the charge leaves free.
    pub(crate) kept_free: u64,
    pub(crate) reset_after: Option<Duration>,
    pub(crate) unit: QuotaUnit,
    pub(crate) partition_key: Option<[u8; 8]>,
    /// True if the units come back one by one, and not when a window ends.
    pub(crate) refills: bool,
    /// True if a shadow keeps it from refusing.
    pub(crate) is_shadow: bool,
}

/// The parts of a policy that no decision changes: the quota, its unit, true if units come back one
/// by one, and the partition key.
pub(crate) type Terms = (Quota, QuotaUnit, bool, Option<[u8; 8]>);

impl<'a> PolicyReport<'a> {
    /// A policy that admits, for limiters of your own, which pass it to
    /// [`Decision::with_policies`](crate::Decision::with_policies).
    #[must_use]
    pub fn new(name: &'a str, quota: Quota) -> Self {
        Self { name, figures: Figures::new(quota) }
    }

    pub(super) fn of(name: &'a str, figures: Figures) -> Self {
        Self { name, figures }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The quota. For smooth limiters, its burst is the number of permits that they store.
    pub fn quota(&self) -> Quota {
        self.figures.quota
    }

    /// Returns the outcome of the charge under this policy alone.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.figures.outcome
    }

    /// Returns true if this policy alone admits the charge, at once or after a reserved wait.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.figures.outcome.is_admitted()
    }

    /// The time after which this policy alone would admit the charge at once. `None` if the policy
    /// admits the charge, or if the charge can never fit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.figures.outcome.retry_after()
    }

    /// The units that this policy alone would admit right now, after the decision. They include
    /// those that the charge [leaves free](PolicyReport::kept_free).
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.figures.remaining
    }

    /// The units that the charge [leaves free](crate::Charge::keep_free).
    #[must_use]
    pub fn kept_free(&self) -> u64 {
        self.figures.kept_free
    }

    /// Sets the units that the charge leaves free. Default: 0.
    #[must_use]
    pub fn with_kept_free(mut self, units: u64) -> Self {
        self.figures.kept_free = units;
        self
    }

    /// The time until the whole quota is available again, reservations included.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.figures.reset_after
    }

    /// The time in which the whole quota comes back. For a window it is the period. For a limit of
    /// concurrency it is 0, since no time brings units back. For a bucket it
    /// is the time in which an empty bucket fills, rounded up to whole seconds.
    #[must_use]
    pub fn window(&self) -> Duration {
        let (period, limit) = (self.figures.quota.period(), self.figures.quota.limit());
        let burst = self.figures.quota.burst_size();
        if !self.figures.refills && burst == limit || limit == 0 {
            return period;
        }
        let micros = (u128::from(burst) * period.as_micros()).div_ceil(limit.into());
        // No algorithm follows a quota that takes longer to refill.
        Duration::from_secs(micros.min(1 << 50).div_ceil(1_000_000) as u64)
    }

    /// Returns the unit of its quota. Default: [`QuotaUnit::ConcurrentRequests`] for a quota [at
    /// once](Quota::at_once), [`QuotaUnit::Requests`] for others.
    #[must_use]
    pub fn unit(&self) -> QuotaUnit {
        self.figures.unit
    }

    /// The first 8 bytes of the key's SHA-256 digest, if the limiter
    /// [shows](crate::limiter::Description::partition_key) it.
    #[must_use]
    pub fn partition_key(&self) -> Option<[u8; 8]> {
        self.figures.partition_key
    }

    /// Returns true if a [`Shadow`](crate::limiter::Shadow) or a [`Switch`](crate::limiter::Switch)
    /// keeps the policy from refusing.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.figures.is_shadow
    }

    /// Sets the outcome under this policy alone. Default: [`Outcome::Allow`].
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.figures.outcome = outcome;
        self
    }

    /// Sets the units that are left of the quota, and the time until the whole quota is available
    /// again.
    #[must_use]
    pub fn with_report(mut self, remaining: u64, reset_after: Duration) -> Self {
        self.figures.remaining = Some(remaining);
        self.figures.reset_after = Some(reset_after);
        self
    }

    /// Sets the unit of its quota. Default: [`QuotaUnit::Requests`].
    #[must_use]
    pub fn with_unit(mut self, unit: QuotaUnit) -> Self {
        self.figures.unit = unit;
        self
    }

    pub(crate) fn terms(&self) -> Terms {
        let Figures { quota, unit, refills, partition_key, .. } = self.figures;
        (quota, unit, refills, partition_key)
    }

    pub(super) fn to_policy(self, name: Arc<str>, place: usize) -> DecidedPolicy {
        DecidedPolicy { name, place, figures: self.figures }
    }

    /// Compares two policies by their effect on the next request: see
    /// [`Decision::tightest`](crate::Decision::tightest).
    pub(crate) fn compare_tightness(&self, other: &Self) -> Ordering {
        self.figures.compare_tightness(&other.figures)
    }

    pub(crate) fn unnamed(self) -> PolicyReport<'static> {
        PolicyReport { name: "", figures: self.figures }
    }
}

impl DecidedPolicy {
    pub(crate) fn report(&self) -> PolicyReport<'_> {
        PolicyReport { name: &self.name, figures: self.figures }
    }
}

impl Figures {
    pub(crate) fn new(quota: Quota) -> Self {
        Self {
            quota,
            outcome: Outcome::Allow,
            remaining: None,
            kept_free: 0,
            reset_after: None,
            unit: match quota.period() {
                Duration::ZERO => QuotaUnit::ConcurrentRequests,
                _ => QuotaUnit::Requests,
            },
            partition_key: None,
            refills: false,
            is_shadow: false,
        }
    }

    /// Compares tightness; `Less` is tighter. Policies that count come before those in a shadow,
    /// then those that refuse longest, then those with the smallest part left for this caller. If
    /// the parts are equal, the policy that is complete last is tighter.
    pub(crate) fn compare_tightness(&self, other: &Self) -> Ordering {
        let refuses = |one: &Self| {
            let retry_after = one.outcome.retry_after().unwrap_or(Duration::MAX);
            (!one.outcome.is_admitted()).then_some(retry_after)
        };
        let part = |one: &Self, whole: &Self| {
            let left = one.remaining.unwrap_or(u64::MAX).saturating_sub(one.kept_free);
            u128::from(left) * u128::from(whole.quota.burst_size())
        };
        (self.is_shadow.cmp(&other.is_shadow))
            .then_with(|| refuses(other).cmp(&refuses(self)))
            .then_with(|| part(self, other).cmp(&part(other, self)))
            .then_with(|| other.reset_after.cmp(&self.reset_after))
    }

    /// The same values after `elapsed` time, with `more` units left.
    pub(crate) fn later(mut self, elapsed: Duration, more: u64) -> Self {
        let left = |time: Duration| time.saturating_sub(elapsed);
        self.remaining = self.remaining.map(|units| units.saturating_add(more));
        self.reset_after = self.reset_after.map(left);
        if let Outcome::Deny { retry_after } = self.outcome {
            self.outcome = Outcome::Deny { retry_after: retry_after.map(left) };
        }
        self
    }
}

pub(crate) const MAX_POLICY_NAME: usize = 64;

/// Returns true if `name` is valid for a policy: 1 to 64 letters, digits or any of `_.:-`.
pub(crate) fn is_policy_name(name: &str) -> bool {
    (1..=MAX_POLICY_NAME).contains(&name.len()) && name.bytes().all(is_policy_name_byte)
}

pub(crate) fn is_policy_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-')
}

/// Returns a distinct name for each of `quotas`: the names of the limiters, one for each quota, or
/// the name of the only limiter with numbers.
pub(crate) fn distinct_names(limiters: &[Arc<str>], quotas: usize) -> Vec<Arc<str>> {
    match limiters {
        [only] if quotas > 1 => (1..=quotas).map(|number| numbered(only, number)).collect(),
        each => {
            let mut names = each.to_vec();
            make_distinct(&mut names.iter_mut().collect::<Vec<_>>());
            names
        }
    }
}

pub(crate) fn make_distinct(names: &mut [&mut Arc<str>]) {
    for index in 1..names.len() {
        if names[..index].iter().any(|name| **name == *names[index]) {
            let mut number = 2;
            let is_taken = |free: &Arc<str>| names.iter().any(|name| **name == *free);
            while is_taken(&numbered(names[index], number)) {
                number += 1;
            }
            *names[index] = numbered(names[index], number);
        }
    }
}

fn numbered(name: &str, number: usize) -> Arc<str> {
    format!("{name}-{number}").into()
}

#[cfg(test)]
mod tests;
