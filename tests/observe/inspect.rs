//! A closure sees each decision once, and changes nothing.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use tokio_test::{assert_pending, task};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::Global;
use tower_sluice::limiter::{AllInTurn, Operation, Origin};
use tower_sluice::respond::Raise;
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Outcome, Quota,
    RateLimitLayer, Settle,
};

use super::{SECOND, one};

/// Key, cost, and the outcome or the kind of the error.
type Line = (String, u64, Result<Outcome, ErrorKind>);

/// The lines of what a closure has seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Line>>>);

impl Seen {
    /// A closure that writes down what it sees.
    fn writer(&self) -> impl Fn(&Charge, Result<&Decision, &Error>) + Send + Sync + use<> {
        let seen = self.clone();
        move |charge, result| {
            let result = result.map(Decision::outcome).map_err(Error::kind);
            let line = (charge.key().to_owned(), charge.units(), result);
            seen.0.lock().unwrap().push(line);
        }
    }

    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn results(&self) -> Vec<Result<Outcome, ErrorKind>> {
        self.take().into_iter().map(|(_, _, result)| result).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn each_decision_is_seen_once_with_its_charge() {
    let seen = Seen::default();
    let inner = Scripted::new().allow().wait(SECOND).deny(SECOND).never().retry(SECOND);
    let limiter = inner.fail(ErrorKind::Capacity).inspect(seen.writer());
    let mut answers = Vec::new();
    for cost in 1..=6 {
        let charge = Charge::new("alice").cost(cost).max_wait(SECOND);
        let answer = limiter.check(&charge).await;
        answers.push(answer.map(|decision| decision.outcome()).map_err(|error| error.kind()));
    }
    let expected = [
        Ok(Outcome::Allow),
        Ok(Outcome::Wait(SECOND)),
        Ok(Outcome::Deny { retry_after: Some(SECOND) }),
        Ok(Outcome::Deny { retry_after: None }),
        Ok(Outcome::Retry(SECOND)),
        Err(ErrorKind::Capacity),
    ];
    assert_eq!(answers, expected);
    let seen = seen.take();
    assert_eq!(seen.len(), 6);
    for ((key, cost, result), (number, expected)) in seen.into_iter().zip((1..).zip(expected)) {
        assert_eq!((&*key, cost, result), ("alice", number, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn refunds_and_operations_pass_unseen() {
    let (seen, scripted) = (Seen::default(), Scripted::new().allow().allow());
    let limiter = scripted.clone().inspect(seen.writer());
    let reservation = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    limiter.refund(reservation).unwrap();
    let reservation = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    limiter.settle(reservation, 7).unwrap();
    assert_eq!(scripted.settlements(), [(0, 0), (1, 7)]);

    seen.take();
    let _ = limiter.estimate("key").await.unwrap();
    limiter.penalize("key").await.unwrap();
    limiter.reset("key").await.unwrap();
    let operations: Vec<_> = scripted.operations().into_iter().map(|(what, _)| what).collect();
    assert_eq!(operations, [Operation::Estimate, Operation::Penalize, Operation::Reset]);
    assert_eq!(seen.results(), []);

    // What the inner limiter cannot, it cannot either.
    let closure = |_: &Charge| std::future::ready(Ok(Decision::new(Outcome::Allow)));
    let limiter = closure.inspect(seen.writer());
    assert_eq!(limiter.reset("key").await.unwrap_err().kind(), ErrorKind::Configuration);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_has_no_result() {
    let seen = Seen::default();
    let silent = |_: &Charge| pending::<Result<Decision, Error>>();
    let mut check = task::spawn(silent.inspect(seen.writer()).check(&one()));
    assert_pending!(check.poll());
    drop(check);
    // One that was never polled neither.
    drop(Scripted::new().allow().inspect(seen.writer()).check(&one()));
    assert_eq!(seen.results(), []);
}

/// It does nothing before the inner future does.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_never_polled_takes_nothing() {
    let store = Memory::new("api", TokenBucket::new(Quota::per_hour(1)));
    drop(store.clone().inspect(|_, _| panic!("nothing is decided")).check(&one()));
    assert_eq!(store.peek("key").await.unwrap().remaining(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn two_of_them_see_the_same_and_each_side_of_a_fallback_its_own() {
    let (inside, outside) = (Seen::default(), Seen::default());
    let store = Scripted::new().allow().fail(ErrorKind::Infrastructure);
    let limiter = store.inspect(inside.writer()).or_else(FailOpen).inspect(outside.writer());
    let limiter = limiter.clone().boxed();
    let _ = limiter.check(&one()).await.unwrap();
    assert_eq!(limiter.check(&one()).await.unwrap().origin(), Origin::FailOpen);
    assert_eq!(inside.results(), [Ok(Outcome::Allow), Err(ErrorKind::Infrastructure)]);
    assert_eq!(outside.results(), [Ok(Outcome::Allow), Ok(Outcome::Allow)]);
}

#[tokio::test(start_paused = true)]
async fn a_member_of_a_combination_sees_its_peeks() {
    let (seen, quota) =
        (Seen::default(), || Memory::new("quota", TokenBucket::new(Quota::per_hour(2))));
    let members = [quota().boxed(), quota().inspect(seen.writer()).boxed()];
    let limiter = AllInTurn::new(members, |charge| [charge.clone(), charge.clone()]);
    let _ = limiter.check(&one()).await.unwrap();
    let costs: Vec<_> = seen.take().into_iter().map(|(_, cost, _)| cost).collect();
    assert_eq!(costs, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn behind_a_layer_a_request_is_seen_once_and_refunded() {
    let (seen, scripted) = (Seen::default(), Scripted::new().allow().deny(SECOND));
    let limiter = scripted.clone().inspect(seen.writer());
    let layer = RateLimitLayer::new(limiter, Global).respond(Raise).settle(|answer| {
        match answer.result() {
            Ok(304) => Settle::Refund,
            _ => Settle::Keep,
        }
    });
    let service = layer.layer(service_fn(async |_: ()| Ok::<_, Infallible>(304)));
    assert_eq!(service.clone().oneshot(()).await.unwrap(), 304);
    service.oneshot(()).await.unwrap_err();
    assert_eq!(scripted.refunds(), [0]);
    let denied = Outcome::Deny { retry_after: Some(SECOND) };
    assert_eq!(seen.results(), [Ok(Outcome::Allow), Ok(denied)]);
}
