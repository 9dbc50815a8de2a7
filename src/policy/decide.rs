//! The decision about a request. Its policies in force decide all or nothing. Its policies in a
//! shadow decide apart from them.

use std::sync::Arc;

use super::armed::{Armed, Asked};
use super::enforce::{Answer, enforce};
use super::observe::{Event, Observer};
use super::shadow;
use super::table::Selection;
use crate::decision::Origin;
use crate::limiter::combination::held_reservations::Tentative;
use crate::{Charge, Decision, Error, Outcome};

/// Decides about a request, and returns the reservations that it made.
///
/// Policies in a shadow are asked last. So they take only what they would take in force: nothing
/// for a request that another policy refuses.
pub(super) async fn decide(
    selection: Arc<Selection>,
    charge: Charge,
    observer: Option<&Observer>,
) -> Result<(Decision, Tentative), Error> {
    let in_force: Vec<Asked> = within_limits_of(&charge, &selection.in_force, true);
    let in_shadow = within_limits_of(&charge, &selection.in_shadow, false);
    let (answer, verdicts) = enforce(&selection, &in_force).await;
    let is_final = charge.units() > 0 && !will_ask_again(&charge, &answer);
    let observer = observer.filter(|_| is_final);
    let (mut shadowed, shadow_taken) = match &answer {
        Some(Ok((decision, _))) if decision.is_admitted() => shadow::check(&in_shadow).await,
        None => shadow::check(&in_shadow).await,
        Some(Ok(_)) if observer.is_some() => {
            (shadow::estimate(&in_shadow).await, Tentative::default())
        }
        Some(_) => Default::default(),
    };
    if !matches!(answer, Some(Err(_))) {
        let keyless = selection.keyless.iter();
        shadowed
            .extend(keyless.map(|one| (&*one.armed, Decision::in_shadow(Err(one.why.clone())))));
    }
    for (armed, decision) in shadowed.iter().filter(|_| is_final) {
        if let Some(event) = Event::in_shadow(armed, decision, &answer) {
            count(&selection, armed, event.result);
            observer.iter().for_each(|observer| observer(&event));
        }
    }
    if let Some(observer) = observer {
        Event::each(&in_force, &answer, &verdicts, |event| observer(&event));
        if answer.as_ref().is_none_or(|one| one.as_ref().is_ok_and(|(one, _)| one.is_admitted())) {
            selection.off.iter().for_each(|armed| observer(&Event::off(armed)));
        }
    }
    Ok(match answer {
        Some(answer) => {
            let (decision, mut taken) = answer?;
            taken.extend(shadow_taken);
            (decision, taken)
        }
        // All are in a shadow, or off.
        None => match shadowed.is_empty() {
            false => (shadowed.swap_remove(0).1, shadow_taken),
            true => (Decision::new(Outcome::Allow).with_origin(Origin::Off), shadow_taken),
        },
    })
}

/// Counts a decision in a shadow at the switch of its policy. Counts it at the global switch too,
/// if that put the policies into the shadow.
fn count(selection: &Selection, armed: &Armed, shadowed: Result<Outcome, &Error>) {
    armed.switch.count(shadowed);
    if let Some(global) = &selection.global_shadow {
        global.count(shadowed);
    }
}

/// Returns true if the request waits, and then asks again.
fn will_ask_again(charge: &Charge, answer: &Option<Answer>) -> bool {
    let Some(Ok((decision, _))) = answer else { return false };
    let max_wait = charge.longest_wait().unwrap_or_default();
    matches!(decision.outcome(), Outcome::Retry(pause) if pause <= max_wait)
}

/// Returns the charges within the limits of the whole charge, which may be a peek, wait less, or
/// end sooner.
fn within_limits_of(whole: &Charge, asked: &[Asked], is_in_force: bool) -> Vec<Asked> {
    let mut asked = asked.to_vec();
    for Asked { charge, .. } in &mut asked {
        let own = charge.longest_wait().unwrap_or_default();
        let wait = if is_in_force { own.min(whole.longest_wait().unwrap_or(own)) } else { own };
        charge.set_max_wait(wait);
        if whole.units() == 0 {
            *charge = charge.clone().peek();
        }
        if let Some(deadline) = whole.deadline() {
            *charge = charge.clone().with_deadline(deadline);
        }
    }
    asked
}
