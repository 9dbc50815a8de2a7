//! The decision of the policies in force about a request: all or nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::armed::{Armed, Asked};
use super::at_once::at_once;
use super::combinations::Together;
use super::on_error::OnError;
use super::parts::{Part, Verdict, joined};
use super::table::Selection;
use super::taken::{Settler, Taken};
use crate::limiter::timeout::after_other_calls;
use crate::limiter::{Limiter, Operation};
use crate::{Charge, Decision, Error, ErrorKind, Origin, Outcome, Reservation};

/// The decision about a request, and the units that were taken.
pub(super) type Answer = Result<(Decision, Taken), Error>;

/// The decisions of policies, and the units that were taken.
type Parts = Result<(Vec<Part>, Taken), Error>;

/// Asks the policies in force. Returns the answer, or `None` if no policy is in force, and the
/// decision of each of them.
pub(super) async fn enforce(
    selection: &Selection,
    asked: &[Asked],
) -> (Option<Answer>, Vec<Verdict>) {
    let parts = match asked {
        [] => return (None, Vec::new()),
        [only] => alone(selection, only, false).await.map(|(part, taken)| (vec![part], taken)),
        _ => all(selection, asked).await,
    };
    let place = |armed: &Arc<Armed>| asked.iter().position(|one| Arc::ptr_eq(&one.armed, armed));
    match parts {
        Ok((parts, taken)) => {
            let mut verdicts: Vec<Verdict> = parts.iter().flat_map(Part::verdicts).collect();
            verdicts.sort_by_key(|one| place(&one.armed));
            let decision = joined(parts, place).ok_or_else(nobody);
            (Some(decision.map(|decision| (decision, taken))), verdicts)
        }
        Err(error) => (Some(Err(error)), Vec::new()),
    }
}

/// Asks one policy, perhaps `after_others` of the request.
async fn alone(
    selection: &Selection,
    asked: &Asked,
    after_others: bool,
) -> Result<(Part, Taken), Error> {
    match asked.armed.gate.check(&asked.charge).await {
        Ok(decision) => {
            let units = decision.reservation().map_or(0, Reservation::cost);
            let (decision, taken) = with_taken(decision, Settler::Gate(Arc::clone(&asked.armed)));
            Ok((Part::of_one(asked, decision, units), taken))
        }
        Err(error) => {
            let (mut parts, taken) = fall_back(selection, &[asked], error, after_others).await?;
            Ok((parts.pop().ok_or_else(nobody)?, taken))
        }
    }
}

/// Asks several policies: first those that decide alone, and give back what they took if the others
/// refuse; then all others together.
async fn all(selection: &Selection, asked: &[Asked]) -> Parts {
    let (others, lone): (Vec<&Asked>, Vec<&Asked>) =
        asked.iter().partition(|asked| asked.armed.gate.joins_others());
    let (mut parts, mut taken) = (Vec::new(), Taken::default());
    for (index, asked) in lone.iter().enumerate() {
        let max_wait = asked.charge.get_max_wait().unwrap_or_default();
        let (part, own) = alone(selection, asked, !parts.is_empty()).await?;
        if !part.is_admitted() {
            if matches!(part.outcome(), Outcome::Retry(wait) if wait <= max_wait) {
                return Ok((vec![part], Taken::default()));
            }
            parts.push(part.denied());
            let unasked = lone[index + 1..].iter().chain(&others);
            let unasked = unasked.map(|one| (*one).clone()).collect();
            return Ok(refused(parts, taken, unasked).await);
        }
        taken.extend(own);
        parts.push(part);
    }
    let after_others = !parts.is_empty();
    let (own_parts, own) = match &others[..] {
        [] => return Ok((parts, taken)),
        [only] => {
            alone(selection, only, after_others).await.map(|(part, own)| (vec![part], own))?
        }
        others => together(selection, others, after_others).await?,
    };
    let is_admitted = own_parts.iter().all(Part::is_admitted);
    if !is_admitted {
        let (before, _) = refused(parts, taken, Vec::new()).await;
        return Ok((before.into_iter().chain(own_parts).collect(), own));
    }
    parts.extend(own_parts);
    taken.extend(own);
    Ok((parts, taken))
}

/// Asks policies that can decide together.
async fn together(selection: &Selection, asked: &[&Asked], after_others: bool) -> Parts {
    match in_one_call(selection, asked, after_others).await {
        Ok(parts) => parts,
        Err(size) => in_turn(selection, asked, size, after_others).await,
    }
}

/// Asks policies all at once. If no call can decide about them, the error is the number to ask at a
/// time instead. It is one if their keys lie in different slots of a cluster, and half of them if
/// they are too many.
async fn in_one_call(
    selection: &Selection,
    asked: &[&Asked],
    after_others: bool,
) -> Result<Parts, usize> {
    let charges: Vec<Charge> = asked.iter().map(|asked| asked.charge.clone()).collect();
    let together = selection.table.together(asked).ok_or(asked.len().div_ceil(2))?;
    let (answer, settler) = match together {
        Together::Memory(together) => {
            (together.check(&charges), Settler::Together(Together::Memory(together)))
        }
        #[cfg(feature = "redis")]
        Together::Redis(together) => {
            let check = together.check(&charges).ok_or(1_usize)?;
            (check.await, Settler::Together(Together::Redis(together)))
        }
    };
    Ok(match answer {
        Ok(decision) => {
            let (decision, taken) = with_taken(decision, settler);
            Ok((vec![Part::of_all(asked, decision)], taken))
        }
        Err(error) => fall_back(selection, asked, error, after_others).await,
    })
}

/// Asks policies that no call can decide about together, `size` at a time. No wait is reserved: a
/// slot that one policy reserved would not be free under the others.
async fn in_turn(
    selection: &Selection,
    asked: &[&Asked],
    size: usize,
    after_others: bool,
) -> Parts {
    let unreserved = |one: &&Asked| Asked {
        charge: one.charge.clone().max_wait(Duration::ZERO),
        ..(*one).clone()
    };
    let asked: Vec<Asked> = asked.iter().map(unreserved).collect();
    let mut calls: VecDeque<&[Asked]> = asked.chunks(size).collect();
    let (mut parts, mut taken) = (Vec::new(), Taken::default());
    while let Some(call) = calls.pop_front() {
        let after_others = after_others || !parts.is_empty();
        let (own_parts, own) = match call {
            [only] => {
                alone(selection, only, after_others).await.map(|(part, own)| (vec![part], own))?
            }
            several => {
                let asked: Vec<&Asked> = several.iter().collect();
                match in_one_call(selection, &asked, after_others).await {
                    Ok(answer) => answer?,
                    Err(size) => {
                        several.chunks(size).rev().for_each(|fewer| calls.push_front(fewer));
                        continue;
                    }
                }
            }
        };
        let is_admitted = own_parts.iter().all(Part::is_admitted);
        parts.extend(own_parts);
        if !is_admitted {
            let unasked = calls.into_iter().flatten().cloned().collect();
            return Ok(refused(parts, taken, unasked).await);
        }
        taken.extend(own);
    }
    Ok((parts, taken))
}

/// Makes a refusal: gives back the units that the other policies took. Asks the policies that were
/// not asked yet how long they would refuse, all at once.
async fn refused(parts: Vec<Part>, taken: Taken, unasked: Vec<Asked>) -> (Vec<Part>, Taken) {
    drop(taken);
    let estimates = unasked.into_iter().map(|asked| async move {
        let estimate = asked.armed.gate.operate(Operation::Estimate, &asked.charge)?;
        let decision = estimate.await.ok()?.without_retry();
        Some(Part::of_one(&asked, decision, 0))
    });
    let estimates = at_once(estimates.collect()).await.into_iter().flatten();
    (parts.into_iter().map(Part::given_back).chain(estimates).collect(), Taken::default())
}

/// Decides in place of a store that cannot, if each of the policies has a substitute for it.
async fn fall_back(
    selection: &Selection,
    asked: &[&Asked],
    error: Error,
    after_others: bool,
) -> Parts {
    let error = match asked {
        [first, ..] if after_others => after_other_calls(error, &first.charge),
        _ => error,
    };
    if !asked.iter().all(|asked| asked.armed.policy.on_error().stands_in(&error)) {
        return Err(error);
    }
    let is_local = |asked: &&Asked| matches!(asked.armed.policy.on_error(), OnError::Local(_));
    let (local, open): (Vec<&Asked>, Vec<&Asked>) = asked.iter().copied().partition(is_local);
    let (mut parts, mut taken) = (Vec::new(), Taken::default());
    if !local.is_empty() {
        let (decision, settler) = match share(selection, &local).await {
            Some(answer) => answer?,
            None => return Err(error),
        };
        let units = decision.reservation().map_or(0, Reservation::cost);
        let (decision, own) = with_taken(decision.with_fallback_cause(error.clone()), settler);
        taken.extend(own);
        parts.push(match &local[..] {
            [only] => Part::of_one(only, decision, units),
            several => Part::of_all(several, decision),
        });
    }
    if !open.is_empty() {
        let decision = Decision::new(Outcome::Allow).with_origin(Origin::FailOpen);
        parts.push(Part::of_all(&open, decision.with_fallback_cause(error)));
    }
    Ok((parts, taken))
}

/// Asks the local shares of the policies. `None` if they are too many, or a policy has no share.
async fn share(
    selection: &Selection,
    asked: &[&Asked],
) -> Option<Result<(Decision, Settler), Error>> {
    if let [only] = asked {
        let decision = only.armed.share.as_ref()?.limiter.check(&only.charge).await;
        return Some(decision.map(|decision| (decision, Settler::Local(Arc::clone(&only.armed)))));
    }
    let charges: Vec<Charge> = asked.iter().map(|asked| asked.charge.clone()).collect();
    match selection.table.shares_together(asked)? {
        Together::Memory(together) => Some(together.check(&charges).map(|decision| {
            (decision, Settler::Together(Together::Memory(Arc::clone(&together))))
        })),
        #[cfg(feature = "redis")]
        Together::Redis(_) => None,
    }
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
