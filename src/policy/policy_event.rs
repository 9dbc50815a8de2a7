//! The events that an observer of policies sees.

use std::sync::Arc;

use super::checked_policy::Policy;
use super::decide_policies::{Answer, Verdict};
use super::limited_policy::{Armed, Asked};
use crate::decision::Origin;
use crate::{Decision, Error, Outcome};

/// Sees the decision of each policy.
pub(super) type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The decision of one policy about one request, as an
/// [observer](super::PoliciesBuilder::on_decision) sees it.
///
/// A request that is refused is shown for those of its policies that refuse it, since the others
/// have taken nothing. If it is undecided, those in a shadow are not asked, and not shown. If it
/// has no key for a policy, it is shown for that one, with an error that says what is missing. A
/// policy that is off, by its row or a switch, is shown for each request that it would have taken
/// and that passes, as admitted with [`Origin::Off`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The outcome, or the error of a policy that could not decide. Of a policy in a shadow: the
    /// result that would have counted outside of it.
    pub result: Result<Outcome, &'a Error>,
    /// The source of the decision. `None` if there is none.
    pub origin: Option<Origin>,
    /// The error of the store that could not decide, where its `on_error` did. `None` if the store
    /// did.
    pub cause: Option<&'a Error>,
    /// True if the policy is in a shadow, so that the request passes whatever it decided.
    pub in_shadow: bool,
}

impl<'a> Event<'a> {
    /// The decision, as `Meter::record` counts it. In a shadow the request is admitted, and the
    /// decision holds what would have been decided.
    ///
    /// # Errors
    ///
    /// If a policy in force could not decide.
    pub fn decision(&self) -> Result<Decision, Error> {
        let origin = self.origin.unwrap_or(Origin::Local);
        let decision = |outcome| {
            let decision = Decision::new(outcome).with_origin(origin);
            match self.cause {
                Some(cause) => decision.with_fallback_cause(cause.clone()),
                None => decision,
            }
        };
        let answer = self.result.map(decision).map_err(Clone::clone);
        if self.in_shadow { Ok(Decision::in_shadow(answer)) } else { answer }
    }

    /// Returns the event of a policy in a shadow: the decision that it would have made. `None` if
    /// it would have admitted a request that another policy refuses: it takes nothing for that.
    pub(super) fn in_shadow(
        armed: &'a Armed,
        decision: &'a Decision,
        answer: &Option<Answer>,
    ) -> Option<Self> {
        let result = decision.shadowed().unwrap_or(Ok(decision.outcome()));
        let origin = result.is_ok().then(|| decision.origin());
        let is_refused = matches!(answer, Some(Ok((decision, _))) if !decision.is_admitted());
        let admits = matches!(result, Ok(Outcome::Allow | Outcome::Wait(_)));
        let event = Self { policy: &armed.policy, result, origin, cause: None, in_shadow: true };
        Some(event).filter(|_| !(is_refused && admits))
    }

    /// The event of a policy in force, which refuses a request that has no key for it.
    pub(super) fn keyless(armed: &'a Armed, why: &'a Error) -> Self {
        let policy = &armed.policy;
        Self { policy, result: Err(why), origin: None, cause: None, in_shadow: false }
    }

    /// The event of a policy that is off: the request passes.
    pub(super) fn off(armed: &'a Armed) -> Self {
        let (policy, result) = (&armed.policy, Ok(Outcome::Allow));
        Self { policy, result, origin: Some(Origin::Off), cause: None, in_shadow: false }
    }

    /// Shows the decision of each of the policies in force.
    pub(super) fn each(
        asked: &'a [Asked],
        answer: &'a Option<Answer>,
        verdicts: &'a [Verdict],
        mut show: impl FnMut(Self),
    ) {
        match answer {
            None => {}
            Some(Err(error)) => asked.iter().for_each(|one| {
                let policy = &one.armed.policy;
                let (origin, cause) = (None, None);
                show(Self { policy, result: Err(error), origin, cause, in_shadow: false });
            }),
            Some(Ok((decision, _))) => {
                for Verdict { armed, outcome, origin, cause } in verdicts {
                    // Nothing is taken under a policy that would have admitted it.
                    let admits = matches!(outcome, Outcome::Allow | Outcome::Wait(_));
                    if decision.is_admitted() || !admits {
                        let policy = &armed.policy;
                        let (result, origin, cause) = (Ok(*outcome), Some(*origin), cause.as_ref());
                        show(Self { policy, result, origin, cause, in_shadow: false });
                    }
                }
            }
        }
    }
}
