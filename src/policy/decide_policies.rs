//! The decision about a request. Its policies in force decide all or nothing. Its policies in a
//! shadow decide separately.

use std::sync::Arc;

use tokio::time::Instant;

use super::checked_policy::OnError;
use super::limited_policy::{Asked, LimitedPolicy};
use super::policy_event::{Event, Observer, PolicyAnswer, PolicyOutcome};
use super::table::Selection;
use crate::decision::Origin;
use crate::limiter::combination::at_once::{AtATime, AtOnce};
use crate::limiter::combination::held_reservations::{By, Tentative};
use crate::limiter::combination::in_turn::{self, Decided, Part, PartsDecision, Rules};
use crate::limiter::combination::join_all::join_all;
use crate::limiter::combination::joined_decision::joined;
use crate::limiter::{Limiter, Operation};
use crate::observe::{Asked as AskedCharge, RecordedOutcome};
use crate::{Charge, Decision, Error, ErrorKind, Outcome};

/// Decides about a request, and returns the reservations that it made.
///
/// Policies in a shadow decide last. So they take the same units as they would in force: none for a
/// request that another policy refuses.
pub(super) async fn decide(
    selection: Arc<Selection>,
    charge: Charge,
    observer: Option<&Observer>,
) -> Result<(Decision, Tentative), Error> {
    let in_force: Vec<Asked> = within_limits_of(&charge, &selection.in_force, true);
    let in_shadow = within_limits_of(&charge, &selection.in_shadow, false);
    let (asked, begun) = (AskedCharge::of(&charge), Instant::now());
    let (answer, outcomes) = enforce(&selection, &in_force).await;
    let asks_again = answer.as_ref().is_some_and(|answer| {
        let outcome = answer.as_ref().map(|(decision, _)| decision.outcome());
        outcome.is_ok_and(|one| asked.of_outcome(one, Some(begun)) == RecordedOutcome::AsksAgain)
    });
    let is_final = charge.units() > 0 && !asks_again;
    let observer = observer.filter(|_| is_final);
    let (mut shadowed, shadow_taken) = match &answer {
        Some(Ok((decision, _))) if decision.is_admitted() => check_in_shadow(&in_shadow).await,
        None => check_in_shadow(&in_shadow).await,
        Some(Ok(_)) if is_final => (estimate_in_shadow(&in_shadow).await, Tentative::default()),
        Some(_) => Default::default(),
    };
    if !matches!(answer, Some(Err(_))) {
        let keyless = selection.keyless.iter();
        shadowed
            .extend(keyless.map(|one| (&*one.limited, Decision::in_shadow(Err(one.why.clone())))));
    }
    let retried_for = charge.retried_for();
    let show = |event: Event<'_>| {
        observer.iter().for_each(|observer| observer(&Event { retried_for, ..event }));
    };
    for (limited, decision) in shadowed.iter().filter(|_| is_final) {
        if let Some(event) = Event::in_shadow(limited, decision, &answer) {
            count(&selection, limited, event.result);
            show(event);
        }
    }
    Event::each(&in_force, &answer, &outcomes, show);
    if answer.as_ref().is_none_or(|one| one.as_ref().is_ok_and(|(one, _)| one.is_admitted())) {
        selection.off.iter().map(|limited| Event::off(limited)).for_each(show);
    }
    Ok(match answer {
        Some(answer) => {
            let (decision, mut taken) = answer?;
            taken.extend(shadow_taken);
            (decision, taken)
        }
        // All policies are in a shadow or off.
        None => match shadowed.is_empty() {
            false => (shadowed.swap_remove(0).1, shadow_taken),
            true => (Decision::new(Outcome::Allow).with_origin(Origin::Off), shadow_taken),
        },
    })
}

/// Counts a decision in a shadow at the switch of its policy, and at the global switch if that put
/// the policies into the shadow.
fn count(selection: &Selection, limited: &LimitedPolicy, shadowed: Result<Outcome, &Error>) {
    limited.switch.count(shadowed);
    if let Some(global) = &selection.global_shadow {
        global.count(shadowed);
    }
}

/// Returns the charges, limited by the whole charge: that may be a peek, or have a shorter wait or
/// an earlier deadline.
fn within_limits_of(whole: &Charge, asked: &[Asked], is_in_force: bool) -> Vec<Asked> {
    let mut asked = asked.to_vec();
    for Asked { charge, .. } in &mut asked {
        let own = charge.longest_wait().unwrap_or_default();
        // What is left of its own wait, if the request asks again.
        let left = if is_in_force { own.saturating_sub(whole.retried_for()) } else { own };
        let most = whole.longest_wait().filter(|_| is_in_force);
        charge.set_max_wait(most.map_or(left, |most| left.min(most)));
        if whole.units() == 0 {
            *charge = charge.clone().peek();
        }
        if let Some(deadline) = whole.deadline() {
            *charge = charge.clone().with_deadline(deadline);
        }
    }
    asked
}

/// Asks the policies in force. Returns the answer, or `None` if no policy is in force, and the
/// decision of each policy.
async fn enforce(
    selection: &Selection,
    asked: &[Asked],
) -> (Option<PolicyAnswer>, Vec<PolicyOutcome>) {
    if asked.is_empty() {
        return (None, Vec::new());
    }
    let part = |(place, Asked { limited, charge }): (_, &Asked)| {
        Part::new(place, limited.limiter.boxed.clone(), charge.clone())
    };
    let parts = asked.iter().enumerate().map(part).collect();
    let rules = InForce { selection, asked };
    let connected = match asked {
        [first, _, ..] => first.limited.limiter.connected(&first.charge).await,
        _ => Ok(()),
    };
    let decided = match connected {
        Ok(()) => in_turn::decide(parts, &rules).await,
        Err(error) => rules.stand_in(parts, error).await,
    };
    let (decisions, tentative) = match decided {
        Ok(decided) => decided,
        Err(error) => return (Some(Err(error)), Vec::new()),
    };
    let mut outcomes: Vec<_> = decisions.iter().flat_map(|one| outcomes(one, asked)).collect();
    outcomes.sort_by_key(|(place, _)| *place);
    let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let cause = decisions.iter().find_map(|one| one.decision.fallback_cause().cloned());
    let named = decisions.into_iter().map(|one| one.map(Decision::keeping_name)).collect();
    let answer = joined(named).ok_or_else(nobody).map(|decision| {
        let decision = match cause {
            Some(cause) if decision.fallback_cause().is_none() => {
                decision.with_fallback_cause(cause)
            }
            _ => decision,
        };
        (decision, tentative)
    });
    (Some(answer), outcomes)
}

/// Returns the decision of each policy, with its place.
fn outcomes(one: &PartsDecision, asked: &[Asked]) -> impl Iterator<Item = (usize, PolicyOutcome)> {
    let PartsDecision { parts, decision, .. } = one;
    // A decision that no policy made, such as one of `FailOpen`, counts for all policies.
    let is_each = parts.len() > 1 && decision.policies().count() == parts.len();
    let own = decision.policies().map(|policy| policy.outcome()).filter(move |_| is_each);
    let outcomes = own.chain(std::iter::repeat(decision.outcome()));
    parts.iter().zip(outcomes).map(|(part, outcome)| {
        let limited = Arc::clone(&asked[part.place].limited);
        let (origin, cause) = (decision.origin(), decision.fallback_cause().cloned());
        (part.place, PolicyOutcome { limited, outcome, origin, cause })
    })
}

fn nobody() -> Error {
    Error::new(ErrorKind::Configuration, "no policy takes the request")
}

/// The policies in force that take a request. The place of a part is its place in this list.
struct InForce<'a> {
    selection: &'a Selection,
    asked: &'a [Asked],
}

impl InForce<'_> {
    fn limited(&self, part: &Part) -> &LimitedPolicy {
        &self.asked[part.place].limited
    }

    /// Asks the local shares of policies. `None` if there are too many policies, or a policy has no
    /// share.
    async fn ask_shares(&self, parts: &[Part]) -> Option<(By, Result<Decision, Error>)> {
        let shares: Option<Vec<_>> =
            parts.iter().map(|part| self.limited(part).share.as_ref()).collect();
        let shares = shares?;
        if let ([share], [part]) = (&shares[..], parts) {
            let answer = share.boxed.check(&part.charge).await;
            return Some((By::Alone(share.boxed.clone()), answer));
        }
        let together = self.selection.table.together(&shares)?;
        let charges: Vec<_> = parts.iter().map(|part| &part.charge).collect();
        let answer = together.check(&charges).ok()?.await;
        Some((By::AtOnce(together), answer))
    }
}

impl Rules for InForce<'_> {
    fn is_alone(&self, part: &Part) -> bool {
        !self.limited(part).limiter.joins_others()
    }

    fn at_once(&self, parts: &[Part]) -> Result<Arc<dyn AtOnce>, AtATime> {
        let half = AtATime(parts.len().div_ceil(2));
        let limiters: Vec<_> = parts.iter().map(|part| &self.limited(part).limiter).collect();
        self.selection.table.together(&limiters).ok_or(half)
    }

    /// Decides in place of a store that failed, if every policy's `on_error` covers the error.
    async fn stand_in(&self, parts: Vec<Part>, error: Error) -> Result<Decided, Error> {
        let on_error = |part: &Part| self.limited(part).policy.on_error();
        if !parts.iter().all(|part| on_error(part).stands_in(&error)) {
            return Err(error);
        }
        let is_local = |part: &Part| matches!(on_error(part), OnError::Local(_));
        let (local, open): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_local);
        let (mut decisions, mut tentative) = (Vec::new(), Tentative::default());
        if !local.is_empty() {
            let Some((by, answer)) = self.ask_shares(&local).await else { return Err(error) };
            let decision = answer?;
            // More than a share: no reason to say that the policy never admits it. The kind is one
            // for which nothing fails open, since the request determines its cost.
            if decision.outcome() == (Outcome::Deny { retry_after: None }) {
                let why = "the request costs more than a local share";
                return Err(Error::new(ErrorKind::Capacity, why).with_source(error));
            }
            let decision = decision.with_fallback_cause(error.clone());
            let (own, taken) = PartsDecision::of(by, local, decision);
            decisions.push(own);
            tentative.extend(taken);
        }
        if !open.is_empty() {
            let decision = Decision::new(Outcome::Allow).with_origin(Origin::FailOpen);
            decisions.push(PartsDecision::untaken(open, decision.with_fallback_cause(error)));
        }
        Ok((decisions, tentative))
    }
}

/// The decisions of policies in a shadow.
type Shadowed<'a> = Vec<(&'a LimitedPolicy, Decision)>;

/// Asks all policies at the same time, and admits the request regardless of their decisions. So the
/// request waits only for the slowest policy. If the caller leaves before all have answered, the
/// taken units are given back.
async fn check_in_shadow(asked: &[Asked]) -> (Shadowed<'_>, Tentative) {
    let check = |Asked { limited, charge, .. }: &Asked| {
        let limiter = limited.limiter.boxed.clone();
        let answer = limiter.check(charge);
        async move {
            let mut decision = Decision::in_shadow(answer.await);
            let reservation = decision.take_reservation();
            (decision, Tentative::new(By::Alone(limiter), 0, reservation))
        }
    };
    let answers = join_all(asked.iter().map(check).collect()).await;
    let (decisions, each): (Vec<_>, Vec<Tentative>) = answers.into_iter().unzip();
    let mut taken = Tentative::default();
    each.into_iter().for_each(|own| taken.extend(own));
    (each_limited(asked).zip(decisions).collect(), taken)
}

/// Estimates the decisions that the policies would have made about a request that another policy
/// refuses. An estimate takes nothing. A policy that cannot estimate is left out.
async fn estimate_in_shadow(asked: &[Asked]) -> Shadowed<'_> {
    let estimate = |Asked { limited, charge, .. }: &Asked| {
        let estimate = limited.limiter.boxed.operate(Operation::Estimate, charge);
        async move { Some(Decision::in_shadow(estimate?.await)) }
    };
    let decisions = join_all(asked.iter().map(estimate).collect()).await;
    each_limited(asked)
        .zip(decisions)
        .filter_map(|(one, decision)| Some((one, decision?)))
        .collect()
}

fn each_limited(asked: &[Asked]) -> impl Iterator<Item = &LimitedPolicy> {
    asked.iter().map(|one| &*one.limited)
}
