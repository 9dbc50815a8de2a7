//! The decision about a request. Its policies in force decide all or nothing. Its policies in a
//! shadow decide separately.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tower_sluice::limiter::{Operation, Origin, Owner};
use tower_sluice::store::{self, Decided, Part, Rules, Together};
use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, Outcome};

use super::bans::with_bans;
use super::limited_policy::{AskedPolicy, LimitedPolicy};
use super::policy::OnError;
use super::policy_event::{PolicyAnswer, PolicyEvent, PolicyObserver};
use super::response_costs::awaiting;
use super::table_in_force::Selection;

/// Decides about a request.
///
/// Policies in a shadow decide last. So they take the same units as they would in force: none for a
/// request that another policy refuses.
pub(crate) async fn decide(
    selection: Arc<Selection>,
    charge: Charge,
    owner: Owner,
    observer: Option<&PolicyObserver>,
) -> Result<Decision, Error> {
    let in_force: Vec<AskedPolicy> = within_limits_of(&charge, &selection.in_force, true);
    let in_shadow = within_limits_of(&charge, &selection.in_shadow, false);
    let begun = Instant::now();
    let answer = enforce(&selection, &in_force).await;
    let outcome = answer.as_ref().map(|answer| answer.as_ref().map(Decided::outcome));
    // As the caller decides: a pause of 0 needs time too.
    let left = || charge.longest_wait().unwrap_or_default().saturating_sub(begun.elapsed());
    let asks_again = matches!(
        outcome,
        Some(Ok(Outcome::Retry(pause))) if pause.max(Duration::from_nanos(1)) <= left()
    );
    let is_final = charge.units() > 0 && !asks_again;
    let is_denied = is_final && matches!(outcome, Some(Ok(Outcome::Deny { .. })));
    let observer = observer.filter(|_| is_final);
    let is_admitted = match outcome {
        None => true,
        Some(outcome) => outcome.is_ok_and(Outcome::is_admitted),
    };
    let shadowed = match outcome {
        _ if is_admitted => ask_in_shadow(&in_shadow, in_force.len(), false).await,
        Some(Ok(_)) if is_final => ask_in_shadow(&in_shadow, in_force.len(), true).await,
        _ => Vec::new(),
    };
    let keyless = selection.keyless.iter().filter(|_| !matches!(outcome, Some(Err(_))));
    let mut keyless: Vec<_> =
        keyless.map(|one| (&*one.limited, Decision::in_shadow(Err(one.why.clone())))).collect();
    let retried_for = charge.retried_for();
    let show = |event: PolicyEvent<'_>| {
        observer.iter().for_each(|observer| observer(&PolicyEvent { retried_for, ..event }));
    };
    let decisions = shadowed
        .iter()
        .flat_map(|(limited, decided)| decided.each().map(|(_, _, decision)| (*limited, decision)));
    let decisions = decisions.chain(keyless.iter().map(|(limited, decision)| (*limited, decision)));
    for (limited, decision) in decisions.filter(|_| is_final) {
        if let Some(event) = PolicyEvent::in_shadow(limited, decision, &answer) {
            // The global switch counts too if it put the policies into the shadow.
            let switches = [Some(&limited.switch), selection.global_shadow.as_ref()];
            switches.into_iter().flatten().for_each(|switch| switch.count(event.result));
            show(event);
        }
    }
    PolicyEvent::each(&in_force, &answer, show);
    if is_admitted {
        selection.off.iter().map(|limited| PolicyEvent::off(limited)).for_each(show);
    }
    let mut shadowed = shadowed.into_iter().map(|(_, decided)| decided);
    let mut decided = match (answer, shadowed.len()) {
        (Some(answer), _) if is_denied => with_bans(answer?, &in_force).await,
        (Some(answer), _) => answer?,
        // All policies are in a shadow or off.
        (None, 1..) => shadowed.next().unwrap_or_default(),
        (None, 0) if keyless.is_empty() => return Ok(Decision::admitted().with_origin(Origin::Off)),
        (None, 0) => return Ok(keyless.swap_remove(0).1),
    };
    shadowed.for_each(|others| decided.hold(others));
    Ok(awaiting(selection, decided.into_decision(owner, charge.units())?))
}

/// Returns the charges, limited by the whole charge: that may be a peek, or have a shorter wait or
/// an earlier deadline.
fn within_limits_of(whole: &Charge, asked: &[AskedPolicy], is_in_force: bool) -> Vec<AskedPolicy> {
    let mut asked = asked.to_vec();
    for AskedPolicy { charge, .. } in &mut asked {
        let own = charge.longest_wait().unwrap_or_default();
        // What is left of its own wait, if the request asks again.
        let left = if is_in_force { own.saturating_sub(whole.retried_for()) } else { own };
        let most = whole.longest_wait().filter(|_| is_in_force);
        let mut limited = charge.clone().max_wait(most.map_or(left, |most| left.min(most)));
        if whole.units() == 0 {
            limited = limited.peek();
        }
        if let Some(deadline) = whole.deadline() {
            limited = limited.with_deadline(deadline);
        }
        *charge = limited;
    }
    asked
}

/// Asks the policies in force. `None` if no policy is in force.
async fn enforce(selection: &Selection, asked: &[AskedPolicy]) -> Option<PolicyAnswer> {
    if asked.is_empty() {
        return None;
    }
    let part = |(place, AskedPolicy { limited, charge }): (_, &AskedPolicy)| {
        Part::new(place, limited.limiter.boxed.clone(), charge.clone())
    };
    let parts = asked.iter().enumerate().map(part).collect();
    Some(store::decide(parts, &InForce { selection, asked }).await)
}

/// The policies in force that take a request. The place of a part is its place in this list.
struct InForce<'a> {
    selection: &'a Selection,
    asked: &'a [AskedPolicy],
}

impl InForce<'_> {
    fn limited(&self, part: &Part) -> &LimitedPolicy {
        &self.asked[part.place].limited
    }

    fn on_error(&self, part: &Part) -> OnError {
        self.limited(part).policy.on_error()
    }

    /// Asks the local shares of policies in place of a store with this error.
    async fn ask_shares(&self, parts: Vec<Part>, error: &Error) -> Result<Decided, Error> {
        let of_share = |Part { place, charge, .. }: Part| {
            let share = self.asked[place].limited.share.as_ref()?;
            // A share is small, and for the time of a fault.
            // Without the units that it keeps free, and without the quota of its plan.
            let wait = charge.longest_wait().unwrap_or_default();
            let own = Charge::new(charge.key()).cost(charge.units()).max_wait(wait);
            let own = match charge.deadline() {
                Some(deadline) => own.with_deadline(deadline),
                None => own,
            };
            Some(Part::new(place, share.boxed.clone(), own))
        };
        let parts: Option<Vec<_>> = parts.into_iter().map(of_share).collect();
        let parts = parts.ok_or_else(|| error.clone())?;
        let decided = store::decide(parts, &Shares(self)).await?;
        // More than a share: no reason to say that the policy never admits it. The kind is one for
        // which nothing fails open, since the request determines its cost.
        if decided.outcome() == (Outcome::Deny { retry_after: None }) {
            let why = "the request costs more than a local share";
            return Err(Error::new(ErrorKind::Capacity, why).with_source(error.clone()));
        }
        Ok(decided.map(|decision| decision.with_fallback_cause(error.clone())))
    }
}

impl Rules for InForce<'_> {
    fn is_alone(&self, part: &Part) -> bool {
        self.limited(part).limiter.choice.is_javas()
    }

    fn together(&self, parts: &[Part]) -> Option<Together> {
        let limiters: Vec<_> = parts.iter().map(|part| &self.limited(part).limiter).collect();
        self.selection.table.combinations.of(&limiters)
    }

    /// Decides in place of a store that failed, if every policy's `on_error` covers the error.
    async fn stand_in(&self, parts: Vec<Part>, error: Error) -> Result<Decided, Error> {
        if !parts.iter().all(|part| self.on_error(part).stands_in(&error)) {
            return Err(error);
        }
        let is_local = |part: &Part| matches!(self.on_error(part), OnError::Local(_));
        let (local, open): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_local);
        let mut decided = match local.is_empty() {
            true => Decided::default(),
            false => self.ask_shares(local, &error).await?,
        };
        let decision = Decision::admitted().with_origin(Origin::FailOpen);
        decided.extend(Decided::new(open, decision.with_fallback_cause(error)));
        Ok(decided)
    }
}

/// The local shares of the policies in force.
struct Shares<'a>(&'a InForce<'a>);

impl Rules for Shares<'_> {
    fn together(&self, parts: &[Part]) -> Option<Together> {
        let share = |part: &Part| self.0.asked[part.place].limited.share.as_ref();
        let shares: Option<Vec<_>> = parts.iter().map(share).collect();
        self.0.selection.table.combinations.of(&shares?)
    }
}

/// Asks all policies in a shadow at the same time, and admits the request regardless of their
/// decisions. So the request waits only for the slowest policy. If the caller leaves before all
/// have answered, the taken units are given back.
///
/// If another policy refuses the request, they only estimate their decisions, which takes nothing.
/// A policy that cannot estimate is left out. The first one has this place among all parts.
async fn ask_in_shadow(
    asked: &[AskedPolicy],
    first: usize,
    is_refused: bool,
) -> Vec<(&LimitedPolicy, Decided)> {
    let asked =
        asked.iter().zip(first..).filter_map(|(AskedPolicy { limited, charge }, place)| {
            let part = Part::new(place, limited.limiter.boxed.clone(), charge.clone());
            let answer = match is_refused {
                true => part.limiter.operate(Operation::Estimate, &part.charge)?,
                false => part.limiter.check(&part.charge),
            };
            Some(async move {
                (&**limited, Decided::new(vec![part], Decision::in_shadow(answer.await)))
            })
        });
    join_all(asked).await
}
