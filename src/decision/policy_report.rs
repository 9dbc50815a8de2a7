//! The report of a decision about each policy that took part in it, and the one that matters most.

use std::cmp::Ordering;
use std::fmt;
use std::iter::FusedIterator;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::Decision;
use super::details::{Details, Held};
use crate::{Outcome, Quota};

/// One policy in the report of a [`Decision`](crate::Decision): its name, its quota, and how the
/// key stands under it.
///
/// A limiter of one quota has one policy, called as the limiter is. A tuple of algorithms has one
/// for each quota, and [`AllInTurn`](crate::limiter::AllInTurn) and
/// [`AllAtOnce`](crate::limiter::AllAtOnce) have those of their members.
/// [`LimiterExt::describe`](crate::LimiterExt::describe) gives them other names.
///
/// ```
/// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
/// use tower_sluice::{Charge, Limiter, Memory, Quota};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().build().unwrap().block_on(async {
/// let quotas = (
///     TokenBucket::new(Quota::per_second(10)),
///     FixedWindow::new(Quota::per_day(1_000)),
/// );
/// let decision = Memory::new("api", quotas).check(&Charge::new("alice").cost(4)).await?;
/// let left: Vec<_> = decision
///     .policies()
///     .map(|policy| (policy.name().to_owned(), policy.remaining()))
///     .collect();
/// assert_eq!(left, [("api-1".into(), Some(6)), ("api-2".into(), Some(996))]);
/// assert_eq!(decision.tightest().map(|policy| policy.quota()), Some(Quota::per_second(10)));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyReport<'a> {
    name: &'a str,
    figures: Figures,
}

/// The unit of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Requests, or whatever costs mean.
    #[default]
    Requests,
    /// Bytes of the content of messages.
    ContentBytes,
    /// Requests that run at the same time.
    ConcurrentRequests,
}

/// A policy as decisions keep it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) name: Arc<str>,
    /// Its place among all policies of its limiter, of which a charge may leave some out; or
    /// `KEEPS_NAME`.
    pub(crate) place: usize,
    pub(crate) figures: Figures,
}

/// The place of a policy whose name no [`Description`](crate::limiter::Description) changes.
#[cfg(any(feature = "redis", feature = "policies"))]
pub(crate) const KEEPS_NAME: usize = usize::MAX;

/// All of a policy but its name and its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) quota: Quota,
    /// The outcome under this policy alone.
    pub(crate) outcome: Outcome,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset_after: Option<Duration>,
    pub(crate) unit: QuotaUnit,
    pub(crate) partition_key: Option<[u8; 8]>,
    /// True if the units come back one by one, and not when a window ends.
    pub(crate) refills: bool,
    /// True if it refuses nobody.
    pub(crate) is_shadow: bool,
}

impl<'a> PolicyReport<'a> {
    /// A policy that admits, for limiters of your own. They pass it to
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

    /// The quota. The burst of a smooth pace is what it stores.
    #[must_use]
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
        matches!(self.figures.outcome, Outcome::Allow | Outcome::Wait(_))
    }

    /// The time after which this policy alone would admit the charge at once. `None` if it admits
    /// it, or if the charge can never fit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.figures.outcome.retry_after()
    }

    /// The units that this policy alone would admit right now, after the decision.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.figures.remaining
    }

    /// The time until the whole quota is there again, reservations included.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.figures.reset_after
    }

    /// The time in which the whole quota comes back: the period of a window; of a bucket the time
    /// in which an empty one fills, rounded up to a second.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.figures.window()
    }

    /// Returns the unit of its quota. Default: [`QuotaUnit::Requests`].
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
    /// watches the policy, so that it refuses nobody.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.figures.is_shadow
    }

    /// Sets what this policy alone decides. Default: [`Outcome::Allow`].
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.figures.outcome = outcome;
        self
    }

    /// Sets what is left of the quota, and the time until all of it is there again.
    #[must_use]
    pub fn with_report(mut self, remaining: u64, reset_after: Duration) -> Self {
        self.figures.remaining = Some(remaining);
        self.figures.reset_after = Some(reset_after);
        self
    }

    /// Sets what its units are. Default: [`QuotaUnit::Requests`].
    #[must_use]
    pub fn with_unit(mut self, unit: QuotaUnit) -> Self {
        self.figures.unit = unit;
        self
    }

    /// Returns its parts that no decision changes: the quota, its unit, and whether units come back
    /// one by one.
    pub(crate) fn terms(&self) -> (Quota, QuotaUnit, bool) {
        (self.figures.quota, self.figures.unit, self.figures.refills)
    }

    pub(super) fn to_policy(self, name: Arc<str>, place: usize) -> Policy {
        Policy { name, place, figures: self.figures }
    }

    /// By what they say about the next request: see
    /// [`Decision::tightest`](crate::Decision::tightest).
    pub(crate) fn compare_tightness(&self, other: &Self) -> Ordering {
        self.figures.compare_tightness(&other.figures)
    }
}

impl Policy {
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
            reset_after: None,
            unit: QuotaUnit::Requests,
            partition_key: None,
            refills: false,
            is_shadow: false,
        }
    }

    fn window(&self) -> Duration {
        let (period, limit) = (self.quota.period(), self.quota.limit());
        let burst = self.quota.burst_size();
        if !self.refills && burst == limit {
            return period;
        }
        let micros = (u128::from(burst) * period.as_micros()).div_ceil(limit.into());
        // A quota is at most 2^50 µs long.
        Duration::from_secs(micros.div_ceil(1_000_000) as u64)
    }

    /// `Less` is tighter: what counts before a shadow, what refuses longest, then the smallest part
    /// left. Of equal parts the one that is complete last.
    pub(crate) fn compare_tightness(&self, other: &Self) -> Ordering {
        let refuses = |one: &Self| match one.outcome {
            Outcome::Deny { retry_after } => Some(retry_after.unwrap_or(Duration::MAX)),
            Outcome::Retry(pause) => Some(pause),
            _ => None,
        };
        let part = |one: &Self, whole: &Self| {
            let left = one.remaining.unwrap_or(u64::MAX);
            u128::from(left) * u128::from(whole.quota.burst_size())
        };
        (self.is_shadow.cmp(&other.is_shadow))
            .then_with(|| refuses(other).cmp(&refuses(self)))
            .then_with(|| part(self, other).cmp(&part(other, self)))
            .then_with(|| other.reset_after.cmp(&self.reset_after))
    }

    /// The same after `elapsed` time, with `more` units left.
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

/// The longest name of a policy.
pub(crate) const MAX_POLICY_NAME: usize = 64;

/// Returns true if it may name a policy: 1 to 64 letters, digits or any of `_.:-`.
pub(crate) fn is_policy_name(name: &str) -> bool {
    (1..=MAX_POLICY_NAME).contains(&name.len()) && name.bytes().all(is_policy_name_byte)
}

pub(crate) fn is_policy_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-')
}

/// A name for each of so many quotas, of which no two are alike: those of the limiters, one for
/// each quota, or the name of the only limiter with numbers.
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

/// Adds a number to each name that stands before it already.
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

/// The policies that took part in a decision, in order: see [`Decision::policies`].
#[derive(Clone)]
pub struct PolicyReports<'a> {
    only: Option<PolicyReport<'a>>,
    several: slice::Iter<'a, Policy>,
}

impl Decision {
    /// Every policy that took part, in order: of a tuple one for each quota, of a combination those
    /// of its members. None if the limiter does not say by which quota it decided.
    ///
    /// Each has its own `remaining` and `reset_after`.
    #[must_use]
    pub fn policies(&self) -> PolicyReports<'_> {
        let several = self.details().and_then(|details| details.policies.as_deref());
        let only = if several.is_some() { None } else { self.only_policy() };
        PolicyReports { only, several: several.unwrap_or_default().iter() }
    }

    /// The policy that matters most to the next request: of those that refuse, the one that refuses
    /// longest; else the one with the smallest part of its quota left. A policy that a shadow
    /// watches comes last.
    ///
    /// All that it says is its own. [`remaining`](Decision::remaining) and
    /// [`reset_after`](Decision::reset_after) may come from different policies.
    #[must_use]
    pub fn tightest(&self) -> Option<PolicyReport<'_>> {
        self.policies().min_by(PolicyReport::compare_tightness)
    }

    /// Sets every policy that took part, and so [`quota`](Decision::quota),
    /// [`remaining`](Decision::remaining), [`reset_after`](Decision::reset_after), and the name of
    /// the [`limiter`](Decision::limiter) if it has none. Default: one policy, which
    /// [`with_limiter`](Decision::with_limiter) names.
    #[must_use]
    pub fn with_policies<'a>(
        mut self,
        policies: impl IntoIterator<Item = PolicyReport<'a>>,
    ) -> Self {
        let placed =
            |(place, policy): (_, PolicyReport<'_>)| policy.to_policy(policy.name().into(), place);
        self.set_policies(policies.into_iter().enumerate().map(placed).collect());
        self
    }

    /// As [`with_policies`](Decision::with_policies).
    pub(crate) fn set_policies(&mut self, policies: Arc<[Policy]>) {
        let tightest = policies.iter().map(Policy::report).min_by(PolicyReport::compare_tightness);
        let Some(tightest) = tightest else { return };
        // One that refuses nobody limits nobody, unless there is no other.
        let are_all_shadows = tightest.is_shadow();
        let counts = |one: &Figures| are_all_shadows || !one.is_shadow;
        let figures = || policies.iter().map(|policy| policy.figures).filter(counts);
        // A limiter may refuse and not say which policy does.
        let has_decided = self.is_admitted() || !tightest.is_admitted();
        let details = self.details_mut();
        if has_decided {
            details.limiter.get_or_insert_with(|| tightest.name().into());
            details.quota = Some(tightest.quota());
        }
        details.remaining = figures().filter_map(|one| one.remaining).min();
        details.reset_after = figures().filter_map(|one| one.reset_after).max();
        details.policies = Some(policies);
    }

    /// The policies, to be reported by another decision.
    pub(crate) fn to_policies(&self) -> Vec<Policy> {
        let Some(details) = self.details() else { return Vec::new() };
        match (&details.policies, &details.limiter, self.only_policy()) {
            (Some(several), ..) => several.to_vec(),
            (None, Some(limiter), Some(only)) => {
                vec![only.to_policy(Arc::clone(limiter), details.place)]
            }
            _ => Vec::new(),
        }
    }

    /// Returns how many policies its limiter has, as far as this decision shows: 1 at least.
    pub(crate) fn policy_count(&self) -> usize {
        let Some(details) = self.details() else { return 1 };
        let places = details.policies.iter().flat_map(|policies| policies.iter());
        let places = places.map(|policy| policy.place).chain([details.place]);
        places.filter_map(|place| place.checked_add(1)).max().unwrap_or(1)
    }

    /// The same where so many policies of other limiters stand before its own.
    pub(crate) fn behind(mut self, others: usize) -> Self {
        if others > 0
            && let Some(details) = self.details.as_mut().map(Held::own)
        {
            details.place = details.place.saturating_add(others);
            details.change_policies(|policy| policy.place = policy.place.saturating_add(others));
        }
        self
    }

    /// The same where the only policy keeps its name, whatever describes it.
    #[cfg(feature = "policies")]
    pub(crate) fn keeping_name(mut self) -> Self {
        if let Some(details) = self.details.as_mut().map(Held::own) {
            details.place = KEEPS_NAME;
        }
        self
    }

    /// The same after `elapsed` time, with `more` units left.
    pub(crate) fn later(mut self, elapsed: Duration, more: u64) -> Self {
        if let Some(details) = self.details.as_mut().map(Held::own) {
            details.remaining = details.remaining.map(|units| units.saturating_add(more));
            details.reset_after = details.reset_after.map(|time| time.saturating_sub(elapsed));
            details.age = details.age.saturating_add(elapsed);
            details.policies = details.policies_later(elapsed, more);
        }
        self
    }

    /// The same once each of its policies has so many units of it again.
    pub(crate) fn given_back(mut self, units: &[u64]) -> Self {
        if let [only] = units {
            return self.later(Duration::ZERO, *only);
        }
        if let Some(details) = self.details.as_mut().map(Held::own)
            && let Some(mut policies) = details.policies.as_deref().map(Arc::<[Policy]>::from)
        {
            for (policy, more) in Arc::get_mut(&mut policies).into_iter().flatten().zip(units) {
                policy.figures = policy.figures.later(Duration::ZERO, *more);
            }
            details.policies = Some(policies);
        }
        self
    }

    /// Returns the report of the only policy, where several are not listed.
    fn only_policy(&self) -> Option<PolicyReport<'_>> {
        let details = self.details()?;
        let figures = Figures {
            outcome: match details.shadowed.as_deref() {
                Some(Ok(outcome)) => *outcome,
                _ => self.outcome,
            },
            remaining: details.remaining,
            reset_after: details.reset_after,
            refills: details.refills,
            is_shadow: details.shadowed.is_some(),
            ..Figures::new(details.quota?)
        };
        Some(PolicyReport::of(details.limiter.as_deref()?, figures))
    }

    /// Marks several policies as watched. The only one is, if the decision has been in shadow.
    pub(super) fn mark_policies_as_shadows(&mut self) {
        if let Some(details) = self.details.as_mut().map(Held::own) {
            details.change_policies(|policy| policy.figures.is_shadow = true);
        }
    }
}

impl Details {
    /// Several policies after `elapsed` time, with `more` units left.
    pub(super) fn policies_later(&self, elapsed: Duration, more: u64) -> Option<Arc<[Policy]>> {
        let later = |policy: &mut Policy| policy.figures = policy.figures.later(elapsed, more);
        changed(self.policies.as_deref()?, later)
    }

    fn change_policies(&mut self, change: impl Fn(&mut Policy)) {
        self.policies = self.policies.as_deref().and_then(|policies| changed(policies, change));
    }
}

fn changed(policies: &[Policy], change: impl Fn(&mut Policy)) -> Option<Arc<[Policy]>> {
    let mut policies: Arc<[Policy]> = policies.into();
    Arc::get_mut(&mut policies)?.iter_mut().for_each(change);
    Some(policies)
}

impl<'a> Iterator for PolicyReports<'a> {
    type Item = PolicyReport<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.only.take().or_else(|| self.several.next().map(Policy::report))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.only.is_some()) + self.several.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for PolicyReports<'_> {}

impl FusedIterator for PolicyReports<'_> {}

impl fmt::Debug for PolicyReports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn left(units: u64, quota: Quota) -> Figures {
        let report = PolicyReport::new("x", quota).with_report(units, SECOND);
        report.figures
    }

    #[test]
    fn a_window_is_a_period_and_a_bucket_fills_in_whole_seconds() {
        let window = |quota, refills| Figures { refills, ..Figures::new(quota) }.window();
        let odd = Quota::new(5, Duration::from_millis(1_500));
        assert_eq!(window(odd, false), Duration::from_millis(1_500));
        assert_eq!(window(odd, true), 2 * SECOND);
        assert_eq!(window(Quota::per_second(3).burst(10), true), 4 * SECOND);
        // Only buckets have a burst.
        assert_eq!(window(Quota::per_second(3).burst(10), false), 4 * SECOND);
        assert_eq!(window(Quota::per_minute(100), true), 60 * SECOND);
    }

    #[test]
    fn tighter_is_what_refuses_longest_then_the_smallest_part() {
        let tightest = |all: &[Figures]| {
            let smallest = all.iter().enumerate().min_by(|a, b| a.1.compare_tightness(b.1));
            smallest.unwrap().0
        };
        let (ten, hundred) = (Quota::per_second(10), Quota::per_second(100));
        assert_eq!(tightest(&[left(5, ten), left(40, hundred)]), 1);
        assert_eq!(tightest(&[left(4, ten), left(40, hundred)]), 0);
        let deny = |figures, retry_after| {
            let outcome = Outcome::Deny { retry_after };
            Figures { outcome, ..figures }
        };
        let [short, long] = [SECOND, 2 * SECOND].map(|wait| deny(left(9, ten), Some(wait)));
        assert_eq!(tightest(&[left(0, ten), short, long]), 2);
        assert_eq!(tightest(&[deny(left(9, ten), None), long]), 0);
        let shadow = Figures { is_shadow: true, ..long };
        assert_eq!(tightest(&[shadow, left(9, ten)]), 1);
        let full_later = Figures { reset_after: Some(2 * SECOND), ..left(0, ten) };
        assert_eq!(tightest(&[left(0, ten), full_later]), 1);
        let unknown = Figures { remaining: None, ..left(0, ten) };
        assert_eq!(tightest(&[unknown, left(10, ten)]), 1);
    }

    #[test]
    fn no_two_names_are_alike() {
        let names = |limiters: &[&str], quotas| {
            let limiters: Vec<Arc<str>> = limiters.iter().map(|name| (*name).into()).collect();
            distinct_names(&limiters, quotas)
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&["api"], 1), ["api"]);
        assert_eq!(names(&["api"], 3), ["api-1", "api-2", "api-3"]);
        assert_eq!(names(&["a", "b"], 2), ["a", "b"]);
        assert_eq!(names(&["a", "a", "a-2", "a"], 4), ["a", "a-3", "a-2", "a-4"]);
    }
}
