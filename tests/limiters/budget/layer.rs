//! A layer settles each request that was answered.

use tower_sluice::future::BoxedFuture;
use tower_sluice::respond::Respond;

use super::left;
use crate::*;

use support::strict::Strict;

/// Five per second, all of which a request may use.
fn budget() -> Memory<Budget> {
    Memory::new("tokens", Budget::new(Quota::per_second(5)))
}

fn five(_: &&'static str) -> Charge {
    Charge::new("alice").cost(5)
}

/// Sends a request, and returns what is left at once and a second later. What is spent refills by
/// then, and what is held does not.
async fn after<T>(layer: T, limiter: &Memory<Budget>, request: &'static str) -> [u64; 2]
where
    T: Layer<Strict, Service: Service<&'static str>>,
{
    let _ = layer.layer(Strict::default()).oneshot(request).await;
    let at_once = left(limiter, "alice").await;
    advance(SECOND).await;
    [at_once, left(limiter, "alice").await]
}

#[tokio::test(start_paused = true)]
async fn a_request_is_settled_with_what_it_cost() {
    let layer = |limiter: &Memory<Budget>| {
        RateLimitLayer::new(limiter.clone(), five).respond(Raise).settle(
            |answer: Answer<&'static str, BoxError>| match answer.result() {
                Ok(&"keep") => Settle::Keep,
                Ok(&"later") => Settle::Later,
                Ok(&"one more") => Settle::Add(1),
                Ok(answer) => Settle::Cost(answer.len() as u64),
                Err(_) => Settle::Refund,
            },
        )
    };
    for (request, left) in [
        ("abc", [2, 5]),
        ("ten bytes!", [0, 0]),
        ("one more", [0, 4]),
        ("fail", [5, 5]),
        // What was charged.
        ("keep", [0, 5]),
        ("later", [0, 5]),
    ] {
        let tokens = budget();
        assert_eq!(after(layer(&tokens), &tokens, request).await, left, "{request}");
    }
    for request in ["abc", "fail"] {
        let tokens = budget();
        let layer = RateLimitLayer::new(tokens.clone(), five).respond(Raise);
        assert_eq!(after(layer, &tokens, request).await, [0, 5], "{request}");
    }
}

/// A request that never reached the inner service gives back what it held.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_settles_nothing() {
    let tokens = budget();
    let mut spent = tokens.check(&Charge::new("alice").cost(5)).await.unwrap();
    let settled = tokens.settle(spent.take_reservation().unwrap(), 5).unwrap().await;
    assert_eq!(settled.unwrap().given_back, 0);
    let layer = RateLimitLayer::new(tokens.clone(), five).respond(Raise).max_wait(SECOND);
    let waiting = layer.layer(Strict::default()).oneshot("hello");
    tokio::time::timeout(SECOND / 2, waiting).await.unwrap_err();
    advance(SECOND / 2).await;
    assert_eq!(left(&tokens, "alice").await, 5);
}

/// Its slot may have come before it is polled again: its process was busy.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_late_settles_nothing() {
    let tokens = budget();
    let spent = tokens.check(&Charge::new("alice").cost(5)).await.unwrap();
    tokens.settle(spent.into_reservation().unwrap(), 5).unwrap().await.unwrap();
    let mut waiting = Box::pin(tokens.acquire(Charge::new("alice").cost(5)));
    tokio::time::timeout(SECOND / 2, &mut waiting).await.unwrap_err();
    advance(SECOND).await;
    drop(waiting);
    assert_eq!(left(&tokens, "alice").await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_leaves_a_hold_that_ends_by_itself() {
    let tokens = budget();
    let endless = service_fn(|_: &'static str| std::future::pending::<Result<&str, BoxError>>());
    let layer = RateLimitLayer::new(tokens.clone(), five).respond(Raise);
    let called = layer.layer(endless).oneshot("hello");
    tokio::time::timeout(SECOND, called).await.unwrap_err();
    // It is under way until a hold is over.
    advance(58 * SECOND).await;
    assert_eq!(left(&tokens, "alice").await, 0);
    advance(62 * SECOND).await;
    assert_eq!(left(&tokens, "alice").await, 5);
}

/// Keeps the reservation, as a handler does that streams.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Vec<Reservation>>>);

impl Respond<&'static str, &'static str, BoxError> for Keeps {
    type Error = BoxError;

    fn reject(&self, _: &'static str, refusal: Refusal) -> Result<&'static str, BoxError> {
        Err(refusal.into())
    }

    fn admit(&self, decision: &mut Decision, _: &mut &'static str) {
        self.0.lock().unwrap().extend(decision.take_reservation());
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_the_reservation_settles_it_itself() {
    let (tokens, kept) = (budget(), Keeps::default());
    let layer = RateLimitLayer::new(tokens.clone(), five).respond(kept.clone());
    layer.layer(Strict::default()).oneshot("hello").await.unwrap();
    advance(10 * SECOND).await;
    assert_eq!(left(&tokens, "alice").await, 0);
    let reservation = kept.0.lock().unwrap().pop().unwrap();
    assert!(reservation.is_held());
    assert_eq!(tokens.settle(reservation, 1).unwrap().await.unwrap().given_back, 4);
    assert_eq!(left(&tokens, "alice").await, 4);
}

/// A limiter whose store fails when a key is to be reset.
struct NeverResets(Memory<Budget>);

impl Limiter for NeverResets {
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> BoxedFuture {
        Box::pin(self.0.check(charge))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.0.settle(reservation, actual)
    }

    fn operate(&self, _: Operation, _: &Charge) -> Option<BoxedFuture> {
        Some(Box::pin(ready(Err(Error::new(ErrorKind::Infrastructure, "the store is away")))))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_reset_leaves_is_settled() {
    let tokens = budget();
    let limiter = NeverResets(tokens.clone());
    let layer = RateLimitLayer::new(limiter, five).respond(Raise);
    let layer = layer.settle(|_| Settle::Reset);
    assert_eq!(after(layer, &tokens, "hello").await, [0, 5]);
}

/// Nothing is settled that is not held and costs what was charged.
#[tokio::test(start_paused = true)]
async fn what_is_not_held_is_not_settled() {
    let (limiter, inner) = (Scripted::new().allow().allow(), Strict::default());
    let gate = RateLimitLayer::new(limiter.clone(), five).respond(Raise).layer(inner.clone());
    gate.clone().oneshot("hello").await.unwrap();
    gate.clone().oneshot("fail").await.unwrap_err();
    assert_eq!((inner.polled(), inner.called()), (2, 2));
    assert_eq!(limiter.settlements(), []);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_settles_what_it_took_and_admits_the_rest() {
    let tokens = budget();
    let layer = RateLimitLayer::new(tokens.clone().shadow(), five).respond(Raise);
    let gate = layer.layer(Strict::default());
    gate.clone().oneshot("hello").await.unwrap();
    gate.clone().oneshot("hello").await.unwrap();
    advance(SECOND).await;
    assert_eq!(left(&tokens, "alice").await, 5);
}

/// Units that a lease took are held while it lasts. Then those that were handed out count as spent.
#[tokio::test(start_paused = true)]
async fn a_lease_settles_what_it_handed_out() {
    let tokens = Memory::new("tokens", Budget::new(Quota::per_second(100)));
    let lease = tokens.clone().lease(10).valid_for(SECOND);
    for _ in 0..60 {
        lease.acquire("alice").await.unwrap();
    }
    lease.end_leases();
    drop(lease);
    advance(2 * SECOND).await;
    // Nothing of a lease is held any more. What was asked for alone is settled by its callers, and
    // none of these did.
    let held = 100 - left(&tokens, "alice").await;
    assert!((1..60).contains(&held), "{held}");
    advance(120 * SECOND).await;
    assert_eq!(left(&tokens, "alice").await, 100);
}
