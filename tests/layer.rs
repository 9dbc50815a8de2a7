//! What the layer promises a tower service, with time paused and without Redis.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, task};
use tower::limit::ConcurrencyLimit;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_sluice::testing::Scripted;
use tower_sluice::{
    Charge, Decision, ErrorKind, Exempt, Global, HttpResponder, Limiter, Outcome, Raise, RateLimit,
    RateLimitLayer, Refusal, Respond,
};

#[path = "support/strict.rs"]
mod strict;

use strict::Strict;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

type Raised<K> = RateLimitLayer<Scripted, K, Raise>;

fn layer(limiter: &Scripted) -> Raised<Global> {
    RateLimitLayer::new(limiter.clone(), Global).respond(Raise)
}

fn gate(limiter: &Scripted) -> (RateLimit<Strict, Scripted, Global, Raise>, Strict) {
    let inner = Strict::default();
    (layer(limiter).max_wait(HOUR).layer(inner.clone()), inner)
}

/// What `future` comes to: with time paused, one that waits for nothing fails instead of hanging.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(24 * HOUR, future).await.expect("it hangs")
}

#[tokio::test(start_paused = true)]
async fn admitted_request_goes_through_at_once() {
    let limiter = Scripted::new().allow();
    let (service, inner) = gate(&limiter);
    let begun = Instant::now();
    assert_eq!(service.oneshot("hello").await.unwrap(), "hello");
    assert_eq!((inner.called(), begun.elapsed()), (1, Duration::ZERO));
    assert_eq!(limiter.charges()[0].key(), "global");
}

#[tokio::test(start_paused = true)]
async fn refused_request_never_reaches_inner() {
    let limiter = Scripted::new().deny(SECOND).never().fail(ErrorKind::Infrastructure);
    let (service, inner) = gate(&limiter);
    for _ in 0..3 {
        let error = service.clone().oneshot("hello").await.unwrap_err();
        assert!(error.is::<Refusal>());
    }
    assert_eq!((inner.polled(), inner.called()), (0, 0));
    assert_eq!(limiter.left(), 0);
}

// Case 110.
#[tokio::test(start_paused = true)]
async fn a_reserved_request_is_never_early_and_does_not_ask_again() {
    let limiter = Scripted::new().wait(Duration::from_millis(200));
    let (service, inner) = gate(&limiter);
    let begun = Instant::now();
    let mut call = task::spawn(service.oneshot("hello"));
    assert_pending!(call.poll());
    tokio::time::advance(Duration::from_millis(199)).await;
    assert_pending!(call.poll());
    assert_eq!(inner.polled(), 0);
    assert_eq!(call.await.unwrap(), "hello");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!((limiter.charges().len(), limiter.refunds()), (1, vec![]));
}

// Case 95.
#[tokio::test(start_paused = true)]
async fn readiness_comes_after_admission() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().wait(SECOND);
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    handle.allow(0);
    let mut call = task::spawn(service.oneshot("hello"));
    assert_pending!(call.poll());
    tokio::time::advance(2 * SECOND).await;
    // Admitted, and now held up by the inner service alone.
    assert_pending!(call.poll());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (request, respond) = soon(handle.next_request()).await.unwrap();
    respond.send_response(request);
    assert_eq!(assert_ready!(call.poll()).unwrap(), "hello");
}

// Case 96.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_holds_no_permit() {
    let inner = ConcurrencyLimit::new(Strict::default(), 1);
    let limiter = Scripted::new().wait(HOUR).allow().allow();
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    let mut delayed = task::spawn(service.clone().oneshot("late"));
    assert_pending!(delayed.poll());
    let begun = Instant::now();
    service.clone().oneshot("first").await.unwrap();
    service.oneshot("second").await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_is_refunded_once() {
    let limiter = Scripted::new().allow().wait(SECOND);
    let (service, _) = gate(&limiter);
    service.clone().oneshot("hello").await.unwrap();
    let mut call = task::spawn(service.oneshot("hello"));
    assert_pending!(call.poll());
    tokio::time::advance(SECOND / 2).await;
    drop(call);
    assert_eq!(limiter.refunds(), [1]);
}

// Case 100.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_slot_has_come_is_not_refunded() {
    let limiter = Scripted::new().wait(SECOND);
    let (service, _) = gate(&limiter);
    let mut call = task::spawn(service.oneshot("hello"));
    assert_pending!(call.poll());
    tokio::time::advance(SECOND).await;
    drop(call);
    assert_eq!(limiter.refunds(), []);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_reaches_inner_is_refunded() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().allow().wait(SECOND).allow();
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    // The callers leave while the inner service is not ready.
    handle.allow(0);
    let mut admitted = task::spawn(service.clone().oneshot("admitted"));
    assert_pending!(admitted.poll());
    let mut waited = task::spawn(service.clone().oneshot("waited"));
    assert_pending!(waited.poll());
    tokio::time::advance(2 * SECOND).await;
    assert_pending!(waited.poll());
    assert_eq!(limiter.refunds(), []);
    drop(admitted);
    drop(waited);
    assert_eq!(limiter.refunds(), [0, 1]);
    // It fails to become ready, which refunds once.
    handle.send_error("broken");
    let mut failed = task::spawn(service.oneshot("failed"));
    assert_ready!(failed.poll()).unwrap_err();
    drop(failed);
    assert_eq!(limiter.refunds(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn request_that_entered_inner_is_not_refunded() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().wait(SECOND).allow();
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    let calls = [service.clone(), service].map(|service| tokio::spawn(service.oneshot("hello")));
    let mut unanswered = Vec::new();
    for call in &calls {
        unanswered.push(soon(handle.next_request()).await.unwrap());
        assert!(!call.is_finished());
    }
    for call in calls {
        call.abort();
    }
    tokio::task::yield_now().await;
    assert_eq!(limiter.refunds(), []);
}

/// A sleep without a bound, past `max_waiters` and past the caller's own patience.
#[tokio::test(start_paused = true)]
async fn a_longer_wait_than_was_asked_for_is_refunded_and_an_error() {
    let limiter = (0..3).fold(Scripted::new(), |limiter, _| limiter.decide(Outcome::Wait(HOUR)));
    let limiter = limiter.retry(SECOND).decide(Outcome::Wait(SECOND));
    let at_once = layer(&limiter);
    let crowded = layer(&limiter).max_wait(HOUR).max_waiters(0);
    let patient = layer(&limiter).max_wait(HOUR - SECOND);
    let again = layer(&limiter).max_wait(2 * SECOND);
    for layer in [at_once, crowded, patient, again] {
        let (inner, begun) = (Strict::default(), Instant::now());
        let error = soon(layer.layer(inner.clone()).oneshot("hello")).await.unwrap_err();
        let Some(Refusal::Undecided(error)) = error.downcast_ref() else { panic!("{error}") };
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(begun.elapsed() < 2 * SECOND);
        assert_eq!(inner.called(), 0);
    }
    assert_eq!(limiter.refunds(), [0, 1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_script_reserves_no_longer_wait_than_it_is_asked_for() {
    let limiter = Scripted::new().wait(SECOND).wait(SECOND).wait(SECOND);
    for max_wait in [SECOND - Duration::from_nanos(1), Duration::ZERO] {
        let charge = Charge::new("alice").max_wait(max_wait);
        let decision = limiter.check(&charge).await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Deny { retry_after: Some(SECOND) });
    }
    let decision = limiter.check(&Charge::new("alice").max_wait(SECOND)).await.unwrap();
    assert_eq!(decision.outcome(), Outcome::Wait(SECOND));
}

// Case 111.
#[tokio::test(start_paused = true)]
async fn beyond_max_waiters_nobody_waits() {
    let limiter = Scripted::new().wait(SECOND).deny(SECOND).wait(SECOND);
    let service = layer(&limiter).max_wait(HOUR).max_waiters(1).layer(Strict::default());
    let mut first = task::spawn(service.clone().oneshot("first"));
    assert_pending!(first.poll());
    soon(service.clone().oneshot("second")).await.unwrap_err();
    first.await.unwrap();
    service.oneshot("third").await.unwrap();
    let asked: Vec<_> = limiter.charges().iter().map(Charge::get_max_wait).collect();
    assert_eq!(asked, [Some(HOUR), Some(Duration::ZERO), Some(HOUR)]);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_unless_the_answer_is_a_wait() {
    let (inner, mut handle) = tower_test::mock::pair::<&str, &str>();
    let limiter = Scripted::new().allow().fail(ErrorKind::Capacity).deny(SECOND).wait(SECOND);
    let service = layer(&limiter).max_wait(HOUR).max_waiters(1).layer(inner);
    let mut admitted = task::spawn(service.clone().oneshot("held up inside"));
    handle.allow(0);
    assert_pending!(admitted.poll());
    soon(service.clone().oneshot("undecided")).await.unwrap_err();
    soon(service.clone().oneshot("denied")).await.unwrap_err();
    let mut waiting = task::spawn(service.oneshot("waits"));
    assert_pending!(waiting.poll());
    assert!(limiter.charges().iter().all(|charge| charge.get_max_wait() == Some(HOUR)));
}

#[tokio::test(start_paused = true)]
async fn a_charge_brings_its_own_patience() {
    let limiter = Scripted::new().allow().allow();
    let key = |request: &&str| Charge::new(String::from(*request)).max_wait(SECOND);
    let layer = RateLimitLayer::new(limiter.clone(), key).respond(Raise);
    layer.clone().layer(Strict::default()).oneshot("one").await.unwrap();
    layer.layer(Strict::default()).oneshot("two").await.unwrap();
    assert!(limiter.charges().iter().all(|charge| charge.get_max_wait() == Some(SECOND)));
}

/// A responder for callers who wait at most a second.
#[derive(Clone)]
struct Impatient;

impl Respond<&'static str, &'static str, BoxError> for Impatient {
    type Error = BoxError;

    fn reject(&self, _: &'static str, _: Refusal) -> Result<&'static str, BoxError> {
        Ok("refused")
    }

    fn max_wait(&self, _: &&'static str) -> Option<Duration> {
        Some(SECOND)
    }

    fn annotate(&self, decision: &mut Decision, response: &mut &'static str) {
        *response = if decision.is_admitted() { "annotated" } else { "wrong" };
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_caller_would() {
    let limiter = Scripted::new().allow().deny(HOUR);
    let layer = RateLimitLayer::new(limiter.clone(), Global).respond(Impatient).max_wait(HOUR);
    let service = layer.layer(Strict::default());
    assert_eq!(service.clone().oneshot("hello").await.unwrap(), "annotated");
    assert_eq!(service.oneshot("hello").await.unwrap(), "refused");
    assert_eq!(limiter.charges()[0].get_max_wait(), Some(SECOND));
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_reserved_it_asks_again_while_patience_lasts() {
    let limiter = Scripted::new().retry(SECOND).retry(SECOND).allow();
    // Each pause is a little longer than it was told, so that not all come back at one moment.
    let jitter = Duration::from_millis(2);
    let patience = 2 * SECOND + jitter;
    let service = layer(&limiter).max_wait(patience).layer(Strict::default());
    let begun = Instant::now();
    service.oneshot("hello").await.unwrap();
    assert!(begun.elapsed() >= 2 * SECOND && begun.elapsed() <= patience + jitter);
    assert_eq!(limiter.charges().len(), 3);

    let limiter = Scripted::new().retry(SECOND).retry(2 * SECOND).allow();
    let service = layer(&limiter).max_wait(2 * SECOND).layer(Strict::default());
    let error = service.oneshot("hello").await.unwrap_err();
    assert_eq!(error.downcast_ref::<Refusal>().unwrap().retry_after(), Some(2 * SECOND));
    assert_eq!((limiter.charges().len(), limiter.left()), (2, 1));

    // A slot that was reserved by a second question comes as much later, and is given
    // back until then.
    let limiter = Scripted::new().retry(10 * SECOND).wait(5 * SECOND);
    let service = layer(&limiter).max_wait(HOUR).layer(Strict::default());
    let waiting = tokio::time::timeout(12 * SECOND, service.oneshot("hello"));
    assert!(waiting.await.is_err());
    assert_eq!(limiter.refunds().len(), 1);

    // A second pause is not a grant for those who do not wait.
    let limiter = Scripted::new().retry(Duration::ZERO).allow();
    layer(&limiter).layer(Strict::default()).oneshot("hello").await.unwrap_err();
    assert_eq!(limiter.charges().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_are_not_charged() {
    let limiter = Scripted::new();
    let layer = RateLimitLayer::new(limiter.clone(), |_: &&str| Exempt).respond(Raise);
    layer.layer(Strict::default()).oneshot("health").await.unwrap();
    assert_eq!(limiter.charges().len(), 0);
}

// Case 94.
#[tokio::test(start_paused = true)]
async fn nothing_is_charged_before_the_call() {
    let limiter = Scripted::new().allow();
    let (mut service, inner) = gate(&limiter);
    for _ in 0..3 {
        service.ready().await.unwrap();
    }
    drop(service);
    assert_eq!((limiter.charges().len(), inner.polled()), (0, 0));
}

// Case 144.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_unpolled_is_not_charged() {
    let limiter = Scripted::new().allow();
    let (mut service, _) = gate(&limiter);
    drop(service.call("hello"));
    assert_eq!(limiter.charges().len(), 0);
}

// Case 101.
#[tokio::test(start_paused = true)]
async fn inner_errors_pass_and_stay_charged() {
    let limiter = Scripted::new().allow();
    let (service, _) = gate(&limiter);
    let error = service.oneshot("fail").await.unwrap_err();
    assert_eq!(error.to_string(), "the inner service failed");
    assert_eq!(limiter.refunds(), []);
}

// Case 80.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_extractor_harms_nobody_else() {
    let limiter = Scripted::new().allow();
    let key = |request: &&str| match *request {
        "panic" => panic!("no key"),
        key => key.to_owned(),
    };
    let layer = RateLimitLayer::new(limiter, key).respond(Raise);
    let service = layer.layer(Strict::default());
    let panicked = tokio::spawn(service.clone().oneshot("panic")).await;
    assert!(panicked.unwrap_err().is_panic());
    service.oneshot("fine").await.unwrap();
}

// Case 109.
#[tokio::test(start_paused = true)]
async fn waiters_are_released_in_their_order() {
    let mut limiter = Scripted::new();
    for place in 1..=1_000 {
        limiter = limiter.wait(Duration::from_millis(place));
    }
    let (inner, mut handle) = tower_test::mock::pair::<u64, u64>();
    let service = layer(&limiter).max_wait(HOUR).layer(inner);
    let calls: Vec<_> = (1..=1_000)
        .map(|place| {
            let mut call = task::spawn(service.clone().oneshot(place));
            assert_pending!(call.poll());
            tokio::spawn(call)
        })
        .collect();
    for place in 1..=1_000 {
        let (request, respond) = soon(handle.next_request()).await.unwrap();
        assert_eq!(request, place);
        respond.send_response(request);
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(limiter.charges().len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn every_answer_of_a_key_closure_is_understood() {
    async fn charged<C: tower_sluice::IntoCharge + 'static>(
        key: impl Fn(&&'static str) -> C + 'static,
    ) -> Option<String> {
        let limiter = Scripted::new().allow();
        let layer = RateLimitLayer::new(limiter.clone(), key).respond(Raise);
        let _ = layer.layer(Strict::default()).oneshot("request").await;
        limiter.charges().first().map(|charge| charge.key().to_owned())
    }
    let key = Some(String::from("a"));
    assert_eq!(charged(|_| "a").await, key);
    assert_eq!(charged(|_| String::from("a")).await, key);
    assert_eq!(charged(|_| Arc::<str>::from("a")).await, key);
    assert_eq!(charged(|_| Box::<str>::from("a")).await, key);
    assert_eq!(charged(|_| Cow::Borrowed("a")).await, key);
    assert_eq!(charged(|_| Cow::<'static, str>::Owned(String::from("a"))).await, key);
    let address = charged(|_| IpAddr::from([192, 0, 2, 1])).await;
    assert_eq!(address.as_deref(), Some("192.0.2.1"));
    assert_eq!(charged(|_| Charge::new("a")).await, key);
    assert_eq!(charged(|_| Some("a")).await, key);
    assert_eq!(charged(|_| Ok::<_, ()>(Charge::new("a"))).await, key);
    assert_eq!(charged(|_| Ok::<_, ()>(Some(String::from("a")))).await, key);
    assert_eq!(charged(|_| None::<&'static str>).await, None);
    assert_eq!(charged(|_| Err::<String, _>("why")).await, None);
    assert_eq!(charged(|_| Exempt).await, None);
}

// Cases 104 and 105.
#[test]
fn layer_and_future_are_what_frameworks_need() {
    fn framework<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    framework::<Raised<Global>>();
    framework::<RateLimit<Strict, Scripted, Global, HttpResponder>>();
    let (mut service, _) = gate(&Scripted::new().allow());
    let call = service.call("hello");
    sent(&call);
    assert!(size_of_val(&call) <= 1_024, "{}", size_of_val(&call));
}

#[test]
fn outcomes_are_copied_and_decisions_hand_out_one_reservation() {
    let mut decision = Decision::new(Outcome::Allow);
    assert!(decision.take_reservation().is_none());
    assert_eq!(decision.outcome(), Outcome::Allow);
}
