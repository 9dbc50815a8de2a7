//! The events that an observer of policies receives.

use std::sync::Arc;
use std::time::Duration;

use tower_sluice::limiter::Origin;
use tower_sluice::store::Decided;
use tower_sluice::{Decision, Error, Outcome};

use super::limited_policy::{AskedPolicy, LimitedPolicy};
use super::policy::Policy;

/// A closure that receives the decision of each policy.
pub(crate) type PolicyObserver = Arc<dyn Fn(&PolicyEvent<'_>) + Send + Sync>;

/// The decisions of the policies in force, and the units that they took.
pub(crate) type PolicyAnswer = Result<Decided, Error>;

/// The decision of one policy about one request, for an
/// [observer](super::PoliciesBuilder::on_decision).
///
/// If a request is refused, there is an event for each policy that refuses it; the other policies
/// have taken nothing. If it is undecided, policies in a shadow are not asked, and have no event.
/// If it has no key for a policy, there is an event for that policy, with an error that says what
/// is missing. A policy that is off, by its row or a switch, has an event for each request that it
/// would have taken and that passes. It is admitted with [`Origin::Off`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PolicyEvent<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The outcome, or the error of a policy that could not decide. For a policy in a shadow: the
    /// result that would have counted without the shadow.
    pub result: Result<Outcome, &'a Error>,
    /// The source of the decision. `None` without a decision.
    pub origin: Option<Origin>,
    /// The error of the store, if the policy's `on_error` decided. `None` if the store decided.
    pub cause: Option<&'a Error>,
    /// True if the policy is in a shadow, so that it does not refuse the request.
    pub in_shadow: bool,
    /// How long the request has waited before it asked again.
    pub(crate) retried_for: Duration,
}

impl<'a> PolicyEvent<'a> {
    /// Returns the decision, as `Meter::record` counts it. In a shadow, the request is admitted,
    /// and the decision has the result that would have counted.
    ///
    /// # Errors
    ///
    /// If a policy in force could not decide.
    pub fn decision(&self) -> Result<Decision, Error> {
        let origin = self.origin.unwrap_or(Origin::Local);
        let decision = |outcome| {
            let decision = Decision::new(outcome).with_origin(origin);
            let decision = decision.with_retried_for(self.retried_for);
            match self.cause {
                Some(cause) => decision.with_fallback_cause(cause.clone()),
                None => decision,
            }
        };
        let answer = self.result.map(decision).map_err(Clone::clone);
        if self.in_shadow { Ok(Decision::in_shadow(answer)) } else { answer }
    }

    /// Makes the event of a policy in a shadow, with the decision that it would have made. `None`
    /// if it would have admitted a request that another policy refuses: then it takes nothing.
    pub(crate) fn in_shadow(
        limited: &'a LimitedPolicy,
        decision: &'a Decision,
        answer: &Option<PolicyAnswer>,
    ) -> Option<Self> {
        let result = decision.shadowed().unwrap_or(Ok(decision.outcome()));
        let origin = result.is_ok().then(|| decision.origin());
        let is_refused = matches!(answer, Some(Ok(decided)) if !decided.outcome().is_admitted());
        let admits = result.is_ok_and(Outcome::is_admitted);
        let event = Self { origin, in_shadow: true, ..Self::of(limited, result) };
        Some(event).filter(|_| !(is_refused && admits))
    }

    /// Makes the event of a policy in force with this result. `Err`: it could not decide, or
    /// refuses a request without a key for it.
    pub(crate) fn of(limited: &'a LimitedPolicy, result: Result<Outcome, &'a Error>) -> Self {
        let (origin, cause, retried_for) = (None, None, Duration::ZERO);
        Self { policy: &limited.policy, result, origin, cause, in_shadow: false, retried_for }
    }

    /// Makes the event of a policy that is off: the request passes.
    pub(crate) fn off(limited: &'a LimitedPolicy) -> Self {
        Self { origin: Some(Origin::Off), ..Self::of(limited, Ok(Outcome::Allow)) }
    }

    /// Shows the decision of each policy in force.
    pub(crate) fn each(
        asked: &'a [AskedPolicy],
        answer: &'a Option<PolicyAnswer>,
        mut show: impl FnMut(Self),
    ) {
        match answer {
            None => {}
            Some(Err(error)) => {
                asked.iter().for_each(|one| show(Self::of(&one.limited, Err(error))));
            }
            Some(Ok(decided)) => {
                let is_admitted = decided.outcome().is_admitted();
                for (part, outcome, decision) in decided.each() {
                    // If the request is refused, a policy that would have admitted it takes
                    // nothing.
                    if is_admitted || !outcome.is_admitted() {
                        let (origin, cause) = (Some(decision.origin()), decision.fallback_cause());
                        let limited = &asked[part.place].limited;
                        show(Self { origin, cause, ..Self::of(limited, Ok(outcome)) });
                    }
                }
            }
        }
    }
}
