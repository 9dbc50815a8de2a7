//! Requests that wait: for the time that was reserved, and for no longer than they may.

use super::*;

// Case 110.
#[tokio::test(start_paused = true)]
async fn a_reserved_request_is_never_early_and_does_not_ask_again() {
    let limiter = Scripted::new().wait(Duration::from_millis(200));
    let (service, inner) = gate(&limiter);
    let begun = Instant::now();
    let mut call = held_up(service.oneshot("hello"));
    tokio::time::advance(Duration::from_millis(199)).await;
    assert_pending!(call.poll());
    assert_eq!(inner.polled(), 0);
    assert_eq!(call.await.unwrap(), "hello");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!((limiter.charges().len(), limiter.refunds()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_is_refunded_once() {
    let limiter = Scripted::new().allow().wait(SECOND);
    let (service, _) = gate(&limiter);
    service.clone().oneshot("hello").await.unwrap();
    let call = held_up(service.oneshot("hello"));
    tokio::time::advance(SECOND / 2).await;
    drop(call);
    assert_eq!(limiter.refunds(), [1]);
}

// Case 100.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_slot_has_come_is_not_refunded() {
    let limiter = Scripted::new().wait(SECOND);
    let (service, _) = gate(&limiter);
    let call = held_up(service.oneshot("hello"));
    tokio::time::advance(SECOND).await;
    drop(call);
    assert!(limiter.refunds().is_empty());
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
    let first = held_up(service.clone().oneshot("first"));
    soon(service.clone().oneshot("second")).await.unwrap_err();
    first.await.unwrap();
    service.oneshot("third").await.unwrap();
    let asked: Vec<_> = limiter.charges().iter().map(Charge::longest_wait).collect();
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
    let _waiting = held_up(service.oneshot("waits"));
    assert!(limiter.charges().iter().all(|charge| charge.longest_wait() == Some(HOUR)));
}

#[tokio::test(start_paused = true)]
async fn a_charge_brings_its_own_patience() {
    let limiter = Scripted::new().allow().allow();
    let key = |request: &&str| Charge::new(String::from(*request)).max_wait(SECOND);
    let layer = RateLimitLayer::new(limiter.clone(), key).respond(Raise);
    layer.clone().layer(Strict::default()).oneshot("one").await.unwrap();
    layer.layer(Strict::default()).oneshot("two").await.unwrap();
    assert!(limiter.charges().iter().all(|charge| charge.longest_wait() == Some(SECOND)));
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_reserved_it_asks_again_while_patience_lasts() {
    let limiter = Scripted::new().retry(SECOND).retry(SECOND).allow();
    // Each pause is a little longer than the limiter said, so that callers do not return at once.
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

/// A wait that no clock can hold is not over.
#[tokio::test(start_paused = true)]
async fn a_wait_without_end_is_refunded_when_its_caller_leaves() {
    let limiter = Scripted::new().wait(Duration::MAX);
    let service = layer(&limiter).max_wait(Duration::MAX).layer(Strict::default());
    assert!(tokio::time::timeout(SECOND, service.oneshot("hello")).await.is_err());
    assert_eq!(limiter.refunds().len(), 1);
}

// Case 144.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_unpolled_is_not_charged() {
    let limiter = Scripted::new().allow();
    let (mut service, _) = gate(&limiter);
    drop(service.call("hello"));
    assert_eq!(limiter.charges().len(), 0);
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
            let call = held_up(service.clone().oneshot(place));
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
