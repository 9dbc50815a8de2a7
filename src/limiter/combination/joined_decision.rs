//! Joins the decisions of a combination's limiters into one decision.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use super::in_turn::PartsDecision;
use crate::decision::{Origin, make_distinct};
use crate::{Decision, Outcome};

/// Joins the decisions of all parts, with every policy in the order of the parts' places. `None` if
/// there are no decisions.
///
/// A part that takes nothing is left out, unless it refuses (its key may be blocked), or no part
/// takes anything.
pub(crate) fn joined(mut decisions: Vec<PartsDecision>) -> Option<Decision> {
    if decisions.iter().any(PartsDecision::has_cost) {
        decisions.retain(|one| one.has_cost() || !one.decision.is_admitted());
    }
    // If decisions are equal, the first counts.
    decisions.sort_by_key(PartsDecision::place);
    let mut policies: Vec<_> = decisions.iter().flat_map(PartsDecision::policies).collect();
    policies.sort_by_key(|(place, _)| *place);
    let mut policies: Vec<_> = policies.into_iter().map(|(_, policy)| policy).collect();
    let waits = decisions.iter().filter(|one| !one.decision.waited().is_zero()).count();
    let not_taken = decisions.iter().map(|one| one.decision.not_taken()).max()?;
    let decisions = decisions.into_iter().map(|one| one.decision);
    let mut decision = decisions.min_by(compare_tightness)?;
    if waits > 1 {
        // A slot that moves up in the line of one part would be too early for the others.
        decision.take_waiters();
    }
    if policies.len() != decision.policies().count() {
        make_distinct(&mut policies.iter_mut().map(|one| &mut one.name).collect::<Vec<_>>());
        decision.set_policies(policies.into());
    }
    Some(if not_taken > 0 { decision.with_not_taken(not_taken) } else { decision })
}

/// Compares tightness; `Less` is tighter. The order is: refuses longest, waits longest, was decided
/// by a limiter, passes only because of a shadow, has the tighter policy.
pub(crate) fn compare_tightness(one: &Decision, other: &Decision) -> Ordering {
    let refuses = |decision: &Decision| match decision.outcome() {
        Outcome::Deny { retry_after } => Some(retry_after.unwrap_or(Duration::MAX)),
        Outcome::Retry(pause) => Some(pause),
        _ => None,
    };
    let key = |decision: &Decision| {
        let is_decided = decision.origin() != Origin::FailOpen;
        let passes = matches!(decision.shadowed(), None | Some(Ok(Outcome::Allow)));
        Reverse((refuses(decision), decision.waited(), is_decided, !passes))
    };
    let left = |decision: &Decision| decision.remaining().unwrap_or(u64::MAX);
    key(one).cmp(&key(other)).then_with(|| match (one.tightest(), other.tightest()) {
        (Some(one), Some(other)) => one.compare_tightness(&other),
        _ => left(one).cmp(&left(other)),
    })
}
