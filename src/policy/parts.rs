//! The separate decisions of a request's policies, and the one decision that they make.

use std::sync::Arc;
use std::time::Duration;

use super::armed::{Armed, Asked};
use crate::decision::{KEEPS_NAME, Policy};
use crate::{Decision, Error, Origin, Outcome};

/// The decision of one policy, or of several together.
pub(super) struct Part {
    policies: Vec<Arc<Armed>>,
    decision: Decision,
    /// The units that each policy took.
    taken: Vec<u64>,
}

/// The decision of one policy.
pub(super) struct Verdict {
    pub(super) armed: Arc<Armed>,
    pub(super) outcome: Outcome,
    pub(super) origin: Origin,
    /// The error of its store, if the store did not decide.
    pub(super) cause: Option<Error>,
}

impl Part {
    /// Makes the part of several policies that decided together.
    pub(super) fn of_all(asked: &[&Asked], decision: Decision) -> Self {
        let policies = asked.iter().map(|one| Arc::clone(&one.armed)).collect();
        let takes = decision.is_admitted();
        let units = |one: &&Asked| if takes { one.charge.get_cost() } else { 0 };
        Self { policies, decision, taken: asked.iter().map(units).collect() }
    }

    /// Makes the part of one policy, which took `taken` units.
    pub(super) fn of_one(asked: &Asked, decision: Decision, taken: u64) -> Self {
        Self { policies: vec![Arc::clone(&asked.armed)], decision, taken: vec![taken] }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.decision.outcome()
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }

    /// The same part, if the caller does not ask again: a retry is a denial.
    pub(super) fn denied(self) -> Self {
        Self { decision: self.decision.without_retry(), ..self }
    }

    /// The same part, after the policies got their units back.
    pub(super) fn given_back(self) -> Self {
        Self { decision: self.decision.given_back(&self.taken), taken: Vec::new(), ..self }
    }

    /// Returns the decision of each of the policies.
    pub(super) fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        let Self { policies, decision, .. } = self;
        // A decision that no policy made, such as one of `FailOpen`, is that of all.
        let is_each = policies.len() > 1 && decision.policies().len() == policies.len();
        let own = decision.policies().map(|policy| policy.outcome()).filter(move |_| is_each);
        let outcomes = own.chain(std::iter::repeat(decision.outcome()));
        policies.iter().zip(outcomes).map(|(armed, outcome)| Verdict {
            armed: Arc::clone(armed),
            outcome,
            origin: decision.origin(),
            cause: decision.fallback_cause().cloned(),
        })
    }
}

/// The decision of all: the longest refusal, else the longest wait, with every policy in the order
/// of `place`, and the error that a fallback stands in for. `None` if there are no parts.
pub(super) fn joined(
    mut parts: Vec<Part>,
    place: impl Fn(&Arc<Armed>) -> Option<usize>,
) -> Option<Decision> {
    if parts.len() == 1 {
        return parts.pop().map(|part| part.decision);
    }
    let mut policies: Vec<_> = parts
        .iter()
        .flat_map(|part| part.policies.iter().zip(part.decision.to_policies()))
        .map(|(armed, policy)| (place(armed), Policy { place: KEEPS_NAME, ..policy }))
        .collect();
    policies.sort_by_key(|(place, _)| *place);
    let cause = parts.iter().find_map(|part| part.decision.fallback_cause().cloned());
    let rank = |decision: &Decision| {
        let (refuses, time) = match decision.outcome() {
            Outcome::Deny { retry_after } => (true, retry_after.unwrap_or(Duration::MAX)),
            Outcome::Retry(pause) => (true, pause),
            _ => (false, decision.waited()),
        };
        // Where one has decided, the whole was decided.
        (refuses, time, decision.origin() != Origin::FailOpen)
    };
    let waits = parts.iter().filter(|part| !part.decision.waited().is_zero()).count();
    // The first of equal ones.
    let decisions = parts.into_iter().rev().map(|part| part.decision);
    let mut decision = decisions.max_by_key(rank)?;
    if waits > 1 {
        // To move up in the line of one would be too early for the others.
        decision.take_waiters();
    }
    decision.set_policies(policies.into_iter().map(|(_, policy)| policy).collect());
    Some(match cause {
        Some(cause) if decision.fallback_cause().is_none() => decision.with_fallback_cause(cause),
        _ => decision,
    })
}
