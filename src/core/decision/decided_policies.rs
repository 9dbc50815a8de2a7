//! The policies of a decision: each that took part in it, and the one that matters most.

use std::sync::Arc;
use std::time::Duration;

use super::Decision;
use super::details::Details;
use super::policy_report::{DecidedPolicy, Figures, KEEPS_NAME, PolicyReport};

impl Decision {
    /// Every policy that took part, in order. A tuple has one for each quota, and a combination has
    /// those of its members. Empty if the limiter does not say by which quota it decided.
    ///
    /// Each has its own `remaining` and `reset_after`.
    pub fn policies(&self) -> impl Iterator<Item = PolicyReport<'_>> + Clone {
        let several = self.details().and_then(|details| details.policies.as_deref());
        let only = if several.is_some() { None } else { self.only_policy() };
        only.into_iter().chain(several.unwrap_or_default().iter().map(DecidedPolicy::report))
    }

    /// The policy that matters most to the next request. If policies refuse, it is the one that
    /// refuses longest; otherwise the one with the smallest part of its quota left. A policy in a
    /// shadow comes last.
    ///
    /// All its values belong to this one policy. In contrast, [`remaining`](Decision::remaining)
    /// and [`reset_after`](Decision::reset_after) of the decision may come from different policies.
    #[must_use]
    pub fn tightest(&self) -> Option<PolicyReport<'_>> {
        self.policies().min_by(PolicyReport::compare_tightness)
    }

    /// Sets every policy that took part. This also sets [`quota`](Decision::quota),
    /// [`remaining`](Decision::remaining), [`reset_after`](Decision::reset_after), and the name of
    /// the [`limiter`](Decision::limiter) if it has no name. Default: one policy, which
    /// [`with_limiter`](Decision::with_limiter) names.
    pub fn with_policies<'a>(
        mut self,
        policies: impl IntoIterator<Item = PolicyReport<'a>>,
    ) -> Self {
        let placed =
            |(place, policy): (_, PolicyReport<'_>)| policy.to_policy(policy.name().into(), place);
        self.set_policies(policies.into_iter().enumerate().map(placed).collect());
        self
    }

    /// Sets the policies as [`with_policies`](Decision::with_policies) does.
    pub(crate) fn set_policies(&mut self, policies: Arc<[DecidedPolicy]>) {
        let tightest =
            policies.iter().map(DecidedPolicy::report).min_by(PolicyReport::compare_tightness);
        let Some(tightest) = tightest else { return };
        // A policy in a shadow limits no request, so it counts only if there is no other.
        let are_all_shadows = tightest.is_shadow();
        let counts = |one: &Figures| are_all_shadows || !one.is_shadow;
        let figures = || policies.iter().map(|policy| policy.figures).filter(counts);
        // A limiter may refuse without saying which policy refuses.
        let has_decided = self.is_admitted() || !tightest.is_admitted();
        let details = self.details_mut();
        if has_decided {
            details.limiter.get_or_insert_with(|| tightest.name().into());
            details.quota = Some(tightest.quota());
        }
        details.remaining = figures().filter_map(|one| one.remaining).min();
        details.reset_after = figures().filter_map(|one| one.reset_after).max();
        let kept_free = tightest.kept_free();
        details.policies = Some(policies);
        self.set_kept_free(kept_free);
    }

    /// Returns the policies, for the report of another decision.
    pub(crate) fn to_policies(&self) -> Vec<DecidedPolicy> {
        let Some(details) = self.details() else { return Vec::new() };
        match (&details.policies, &details.limiter, self.only_policy()) {
            (Some(several), ..) => several.to_vec(),
            (None, Some(limiter), Some(only)) => {
                vec![only.to_policy(Arc::clone(limiter), details.place)]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the number of policies that its limiter has, as far as this decision shows: at least
    /// 1.
    pub(crate) fn policy_count(&self) -> usize {
        let Some(details) = self.details() else { return 1 };
        let places = details.policies.iter().flat_map(|policies| policies.iter());
        let places = places.map(|policy| policy.place).chain([details.place]);
        places.filter_map(|place| place.checked_add(1)).max().unwrap_or(1)
    }

    /// The same decision, after that many policies of other limiters.
    pub(crate) fn behind(mut self, others: usize) -> Self {
        if others > 0
            && let Some(details) = &mut self.details
        {
            details.place = details.place.saturating_add(others);
            for policy in details.policies_mut() {
                policy.place = policy.place.saturating_add(others);
            }
        }
        self
    }

    /// The same decision, whose only policy keeps its name even if a description has another one.
    pub(crate) fn keeping_name(mut self) -> Self {
        if let Some(details) = &mut self.details {
            details.place = KEEPS_NAME;
        }
        self
    }

    /// The same decision after `elapsed` time, with `more` units left.
    pub(crate) fn later(mut self, elapsed: Duration, more: u64) -> Self {
        if let Some(details) = &mut self.details {
            details.remaining = details.remaining.map(|units| units.saturating_add(more));
            details.reset_after = details.reset_after.map(|time| time.saturating_sub(elapsed));
            if let Some(rare) = &mut details.rare {
                rare.paused_for = rare.paused_for.saturating_sub(elapsed);
            }
            details.age = details.age.saturating_add(elapsed);
            for policy in details.policies_mut() {
                policy.figures = policy.figures.later(elapsed, more);
            }
        }
        self
    }

    /// The same decision after each policy got back that many of its units.
    pub(crate) fn given_back(mut self, units: &[u64]) -> Self {
        if let [only] = units {
            return self.later(Duration::ZERO, *only);
        }
        if let Some(details) = &mut self.details {
            for (policy, more) in details.policies_mut().iter_mut().zip(units) {
                policy.figures = policy.figures.later(Duration::ZERO, *more);
            }
        }
        self
    }

    /// Returns the report of the only policy, if no several are listed.
    fn only_policy(&self) -> Option<PolicyReport<'_>> {
        let (details, shadowed) = (self.details()?, self.shadowed());
        let figures = Figures {
            outcome: match shadowed {
                Some(Ok(outcome)) => outcome,
                _ => self.outcome,
            },
            remaining: details.remaining,
            kept_free: self.kept_free(),
            reset_after: details.reset_after,
            refills: details.refills,
            is_shadow: shadowed.is_some(),
            ..Figures::new(details.quota?)
        };
        Some(PolicyReport::of(details.limiter.as_deref()?, figures))
    }
}

impl Details {
    /// The listed policies, for a change. Other decisions keep the old ones.
    pub(super) fn policies_mut(&mut self) -> &mut [DecidedPolicy] {
        self.policies.as_mut().map(Arc::make_mut).unwrap_or_default()
    }
}
