//! Policies in a shadow: they decide, and refuse and delay nobody.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::table::Asked;
use super::taken::{Settler, Taken};
use crate::future::BoxedFuture;
use crate::limiter::{Limiter, Operation};
use crate::{Decision, Error};

/// What policies in a shadow decided.
pub(super) type Shadowed<'a> = Vec<(&'a Asked, Decision)>;

/// Asks them all at once, and admits whatever they say. So the request waits for the slowest of
/// them, and not for all together.
pub(super) async fn check(asked: &[Asked]) -> (Shadowed<'_>, Taken) {
    let checks = asked.iter().map(|one| (one, one.armed.gate.check(&one.charge))).collect();
    let (mut decisions, mut taken) = (Vec::new(), Taken::default());
    for (one, answer) in all(checks).await {
        let mut decision = Decision::in_shadow(answer);
        taken.add(Settler::Gate(Arc::clone(&one.armed)), decision.take_reservation());
        decisions.push((one, decision));
    }
    (decisions, taken)
}

/// What they would have decided about a request that another policy refuses, as far as they can say
/// so without taking anything.
pub(super) async fn estimate(asked: &[Asked]) -> Shadowed<'_> {
    let estimate = |one: &Asked| one.armed.gate.operate(Operation::Estimate, &one.charge);
    let estimates = asked.iter().filter_map(|one| Some((one, estimate(one)?))).collect();
    let answers = all(estimates).await;
    answers.map(|(one, answer)| (one, Decision::in_shadow(answer))).collect()
}

/// Awaits them all at once.
async fn all(
    futures: Vec<(&Asked, BoxedFuture)>,
) -> impl Iterator<Item = (&Asked, Result<Decision, Error>)> {
    let (asked, mut futures): (Vec<_>, Vec<_>) = futures.into_iter().unzip();
    let mut answers: Vec<Option<_>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    asked.into_iter().zip(answers.into_iter().flatten())
}
