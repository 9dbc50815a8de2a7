//! How the policies of one request decide: all or nothing, those in a shadow apart.

use std::sync::Arc;
use std::time::Duration;

use super::combinations::Together;
use super::observe::{Event, Observer};
use super::on_error::OnError;
use super::shadow;
use super::table::{Asked, MAX_TOGETHER, Selection};
use super::taken::{Settler, Taken};
use crate::limiter::{Limiter, Operation, memory};
use crate::{Charge, Decision, Error, ErrorKind, Origin, Outcome};

/// Decides about a request, and returns what it took.
///
/// Those in a shadow are asked last. So they take what they would take in force: nothing of a
/// request that another one refuses.
pub(super) async fn decide(
    selection: Arc<Selection>,
    charge: Charge,
    observer: Option<Observer>,
) -> Result<(Decision, Taken), Error> {
    let in_force: Vec<Asked> = on_terms_of(&charge, &selection.in_force, true);
    let in_shadow = on_terms_of(&charge, &selection.in_shadow, false);
    let answer = enforce(&selection, &in_force).await;
    let observer = observer.filter(|_| charge.get_cost() > 0 && !will_ask_again(&charge, &answer));
    let (mut shadowed, shadow_taken) = match &answer {
        Some(Ok((decision, _))) if decision.is_admitted() => shadow::check(&in_shadow).await,
        None => shadow::check(&in_shadow).await,
        Some(Ok(_)) if observer.is_some() => (shadow::estimate(&in_shadow).await, Taken::default()),
        Some(_) => Default::default(),
    };
    if let Some(observer) = observer {
        for (asked, decision) in &shadowed {
            Event::in_shadow(asked, decision, &answer).iter().for_each(|event| observer(event));
        }
        Event::each(&in_force, &answer, |event| observer(&event));
    }
    Ok(match answer {
        Some(answer) => {
            let (decision, mut taken) = answer?;
            taken.extend(shadow_taken);
            (decision, taken)
        }
        // All are in a shadow.
        None => (shadowed.swap_remove(0).1, shadow_taken),
    })
}

/// Whether the request waits, and then asks again.
fn will_ask_again(charge: &Charge, answer: &Option<Answer>) -> bool {
    let Some(Ok((decision, _))) = answer else { return false };
    let max_wait = charge.get_max_wait().unwrap_or_default();
    matches!(decision.outcome(), Outcome::Retry(pause) if pause <= max_wait)
}

/// The charges as the whole charge lets them be: it may be a peek, wait less, and end sooner.
fn on_terms_of(whole: &Charge, asked: &[Asked], is_in_force: bool) -> Vec<Asked> {
    let mut asked = asked.to_vec();
    for Asked { charge, .. } in &mut asked {
        let own = charge.get_max_wait().unwrap_or_default();
        let wait = if is_in_force { own.min(whole.get_max_wait().unwrap_or(own)) } else { own };
        charge.set_max_wait(wait);
        if whole.get_cost() == 0 {
            *charge = charge.clone().peek();
        }
        if let Some(deadline) = whole.deadline() {
            *charge = charge.clone().with_deadline(deadline);
        }
    }
    asked
}

type Answer = Result<(Decision, Taken), Error>;

/// Asks the policies in force. `None` if there are none.
async fn enforce(selection: &Selection, asked: &[Asked]) -> Option<Answer> {
    match asked {
        [] => None,
        [only] => Some(alone(only).await),
        _ => Some(all(selection, asked).await),
    }
}

/// Asks one policy.
async fn alone(asked: &Asked) -> Answer {
    match asked.armed.gate.check(&asked.charge).await {
        Ok(decision) => Ok(with_taken(decision, Settler::Gate(Arc::clone(&asked.armed)))),
        Err(error) => fall_back(&[asked], error).await,
    }
}

/// Asks several policies: first those that decide alone, and give back what they took if the others
/// refuse; then all others together.
async fn all(selection: &Selection, asked: &[Asked]) -> Answer {
    let (others, lone): (Vec<&Asked>, Vec<&Asked>) =
        asked.iter().partition(|asked| asked.armed.gate.joins_others());
    let (mut decisions, mut taken) = (Vec::new(), Taken::default());
    for (place, asked) in lone.iter().enumerate() {
        let max_wait = asked.charge.get_max_wait().unwrap_or_default();
        let (decision, own) = alone(asked).await?;
        if !decision.is_admitted() {
            let may_retry = matches!(decision.outcome(), Outcome::Retry(wait) if wait <= max_wait);
            if may_retry {
                return Ok((decision, Taken::default()));
            }
            decisions.push(decision.denied());
            let unasked = [&lone[place + 1..], &others[..]].concat();
            return Ok((refused(decisions, &unasked).await, Taken::default()));
        }
        taken.extend(own);
        decisions.push(decision);
    }
    let (decision, own) = match &others[..] {
        [] => return joined(decisions).map(|decision| (decision, taken)).ok_or_else(nobody),
        [only] => alone(only).await?,
        others => together(selection, others).await?,
    };
    let is_admitted = decision.is_admitted();
    decisions.push(decision);
    if !is_admitted {
        return Ok((refused(decisions, &[]).await, Taken::default()));
    }
    taken.extend(own);
    joined(decisions).map(|decision| (decision, taken)).ok_or_else(nobody)
}

/// Asks policies that can decide together.
async fn together(selection: &Selection, asked: &[&Asked]) -> Answer {
    let charges: Vec<Charge> = asked.iter().map(|asked| asked.charge.clone()).collect();
    let answer = match selection.table.together(asked) {
        None => return in_turn(asked).await,
        Some(Together::Memory(together)) => {
            let answer = together.check(&charges);
            answer
                .map(|decision| with_taken(decision, Settler::Together(Together::Memory(together))))
        }
        #[cfg(feature = "redis")]
        Some(Together::Redis(together)) => match together.check(&charges) {
            None => return in_turn(asked).await,
            Some(check) => check
                .await
                .map(|decision| with_taken(decision, Settler::Together(Together::Redis(together)))),
        },
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(error) => fall_back(asked, error).await,
    }
}

/// Asks policies that no call can decide about together, such as keys in different slots of a
/// cluster. Nothing is reserved: a slot that one reserved would be no slot of the others.
async fn in_turn(asked: &[&Asked]) -> Answer {
    let (mut decisions, mut taken) = (Vec::new(), Taken::default());
    for (place, one) in asked.iter().enumerate() {
        let charge = one.charge.clone().max_wait(Duration::ZERO);
        let (decision, own) = alone(&Asked { charge, ..(*one).clone() }).await?;
        if !decision.is_admitted() {
            decisions.push(decision);
            return Ok((refused(decisions, &asked[place + 1..]).await, Taken::default()));
        }
        taken.extend(own);
        decisions.push(decision);
    }
    joined(decisions).map(|decision| (decision, taken)).ok_or_else(nobody)
}

/// The refusal of some policies, of which those that admitted give back what they took. Those that
/// nobody has asked are asked how long they would refuse.
async fn refused(decisions: Vec<Decision>, unasked: &[&Asked]) -> Decision {
    let mut all = decisions;
    for Asked { armed, charge, .. } in unasked {
        let charge = charge.clone().max_wait(Duration::ZERO);
        if let Some(estimate) = armed.gate.operate(Operation::Estimate, &charge)
            && let Ok(decision) = estimate.await
        {
            all.push(decision.denied());
        }
    }
    joined(all).unwrap_or_else(|| Decision::new(Outcome::Deny { retry_after: None }))
}

/// The decision of all: the longest refusal, else the longest wait, with every policy.
fn joined(decisions: Vec<Decision>) -> Option<Decision> {
    let policies: Vec<_> = decisions.iter().flat_map(Decision::to_policies).collect();
    let rank = |decision: &Decision| match decision.outcome() {
        Outcome::Deny { retry_after } => (true, retry_after.unwrap_or(Duration::MAX)),
        Outcome::Retry(pause) => (true, pause),
        _ => (false, decision.waited()),
    };
    let is_one = decisions.len() == 1;
    // Of equal ones the first.
    let mut decision = decisions.into_iter().rev().max_by_key(rank)?;
    if !is_one {
        decision.set_policies(policies.into());
    }
    Some(decision)
}

/// Decides in place of a store that cannot, if each of the policies has something that does.
async fn fall_back(asked: &[&Asked], error: Error) -> Answer {
    if !asked.iter().all(|asked| asked.armed.policy.on_error().stands_in(&error)) {
        return Err(error);
    }
    let is_local = |asked: &&&Asked| matches!(asked.armed.policy.on_error(), OnError::Local(_));
    let local: Vec<&Asked> = asked.iter().filter(is_local).copied().collect();
    let charge = |asked: &Asked| asked.charge.clone();
    Ok(match &local[..] {
        [] => {
            let decision = Decision::new(Outcome::Allow).with_origin(Origin::FailOpen);
            (decision, Taken::default())
        }
        [only] => {
            let Some(local) = &only.armed.local else { return Err(error) };
            let decision = local.check(&charge(only)).await?;
            with_taken(decision, Settler::Local(Arc::clone(&only.armed)))
        }
        _ if local.len() > MAX_TOGETHER => return Err(error),
        several => {
            let members: Option<Vec<_>> =
                several.iter().map(|asked| asked.armed.local.as_ref()).collect();
            let Some(members) = members else { return Err(error) };
            let together = Arc::new(memory::Together::new(&members));
            let charges: Vec<Charge> = several.iter().map(|asked| charge(asked)).collect();
            let decision = together.check(&charges)?;
            with_taken(decision, Settler::LocalTogether(together))
        }
    })
}

/// The decision without its reservation, which is kept with the limiter that settles it.
fn with_taken(mut decision: Decision, settler: Settler) -> (Decision, Taken) {
    let mut taken = Taken::default();
    taken.add(settler, decision.take_reservation());
    (decision, taken)
}

fn nobody() -> Error {
    Error::new(ErrorKind::Configuration, "no policy takes the request")
}
