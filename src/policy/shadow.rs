//! Policies in a shadow: they decide, but refuse and delay no request.

use super::armed::{Armed, Asked};
use crate::Decision;
use crate::limiter::combination::held_reservations::{By, Tentative};
use crate::limiter::combination::join_all::join_all;
use crate::limiter::{Limiter, Operation};

/// The decisions of policies in a shadow.
pub(super) type Shadowed<'a> = Vec<(&'a Armed, Decision)>;

/// Asks all of them at once, and admits the request whatever they decide. So the request waits for
/// the slowest of them, and not for all together. If the caller leaves before all have answered,
/// the taken units are given back.
pub(super) async fn check(asked: &[Asked]) -> (Shadowed<'_>, Tentative) {
    let check = |Asked { armed, charge, .. }: &Asked| {
        let (limiter, answer) = (armed.limiter.clone(), armed.limiter.check(charge));
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
    (each_armed(asked).zip(decisions).collect(), taken)
}

/// Estimates the decisions that they would have made about a request that another policy refuses.
/// An estimate takes nothing, so a policy that cannot estimate is left out.
pub(super) async fn estimate(asked: &[Asked]) -> Shadowed<'_> {
    let estimate = |Asked { armed, charge, .. }: &Asked| {
        let estimate = armed.limiter.operate(Operation::Estimate, charge);
        async move { Some(Decision::in_shadow(estimate?.await)) }
    };
    let decisions = join_all(asked.iter().map(estimate).collect()).await;
    each_armed(asked).zip(decisions).filter_map(|(one, decision)| Some((one, decision?))).collect()
}

fn each_armed(asked: &[Asked]) -> impl Iterator<Item = &Armed> {
    asked.iter().map(|one| &*one.armed)
}
