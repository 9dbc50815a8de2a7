//! A breaker among the other limiters.

use super::*;

/// A store of ten decisions that fail.
fn failing() -> Scripted {
    (0..10).fold(Scripted::new(), |store, _| store.fail(ErrorKind::Infrastructure))
}

fn share() -> Memory<TokenBucket> {
    Memory::new("share", TokenBucket::new(Quota::per_second(1_000)))
}

// Case 119.
#[tokio::test(start_paused = true)]
async fn a_fallback_answers_while_it_is_open_and_settles_its_own() {
    let (store, breaker) = (failing(), Breaker::new());
    let limiter = store.clone().timeout(SECOND).breaker(breaker.clone()).or_else(share()).boxed();
    for _ in 0..100 {
        let mut decision = limiter.acquire("key").await.unwrap();
        assert_eq!(decision.limiter(), Some("share"));
        let reservation = decision.take_reservation().unwrap();
        limiter.refund(reservation).unwrap();
    }
    assert_eq!((store.charges().len(), breaker.counts().refused), (5, 95));
}

/// Several limiters over one store learn from each other.
#[tokio::test(start_paused = true)]
async fn clones_are_one_breaker() {
    let breaker = Breaker::new();
    let [one_store, other_store] = [failing(), Scripted::new().allow()];
    let limiters = [&one_store, &other_store].map(|store| store.clone().breaker(breaker.clone()));
    for _ in 0..5 {
        limiters[0].clone().check(&one()).await.unwrap_err();
    }
    assert!(limiters[1].check(&one()).await.is_err());
    assert_eq!(other_store.charges().len(), 0);
    // A setter makes another one.
    let other = breaker.clone().min_failures(7);
    assert_eq!((breaker.state(), other.state()), (BreakerState::Open, BreakerState::Closed));
}

/// It stays open then, but holds no more with each probe.
#[tokio::test(start_paused = true)]
async fn inside_of_itself_it_keeps_one_cause() {
    let (store, breaker) = (Store::default(), Breaker::new());
    let limiter = store.limiter().breaker(breaker.clone()).breaker(breaker.clone());
    while breaker.state() == BreakerState::Closed {
        ask(&limiter, "away").await.unwrap_err();
    }
    for _ in 0..20 {
        advance(PAUSE).await;
        ask(&limiter, "well").await.unwrap_err();
    }
    let refused = ask(&limiter, "well").await.unwrap_err();
    let cause = std::error::Error::source(&refused).expect("the last failure");
    assert_eq!(
        (cause.to_string().as_str(), cause.source().is_none()),
        ("as the charge says", true)
    );
}

#[tokio::test(start_paused = true)]
async fn settlements_pass_while_it_is_open() {
    let breaker = Breaker::new();
    let store =
        (0..5).fold(Scripted::new().allow(), |store, _| store.fail(ErrorKind::Infrastructure));
    let limiter = store.clone().breaker(breaker.clone());
    let reservation = limiter.check(&one()).await.unwrap().take_reservation().unwrap();
    advance(SECOND).await;
    while breaker.state() == BreakerState::Closed {
        limiter.check(&one()).await.unwrap_err();
    }
    limiter.settle(reservation, 3).unwrap();
    assert_eq!(store.settlements(), [(0, 3)]);
}

#[tokio::test(start_paused = true)]
async fn operations_are_refused_while_it_is_open_and_probe_it() {
    let (bucket, breaker) = (share(), Breaker::new());
    let (_, other, _) = opened(breaker.clone()).await;
    let limiter = bucket.clone().breaker(breaker.clone());
    assert_eq!(limiter.estimate("key").await.unwrap_err().kind(), ErrorKind::Infrastructure);
    for answer in [limiter.penalize("key"), limiter.reset("key")] {
        assert_eq!(answer.await.unwrap_err().kind(), ErrorKind::Infrastructure);
    }
    assert_eq!((bucket.len(), breaker.counts().refused), (0, 3));
    // Open or closed, what the inner limiter cannot do is `None`.
    assert!(other.operate(Operation::Reset, &one()).is_none());
    advance(PAUSE).await;
    limiter.penalize("key").await.unwrap();
    assert_eq!((bucket.len(), breaker.state()), (1, BreakerState::Closed));
    assert!(other.operate(Operation::Reset, &one()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deny_cache_outside_goes_on_while_it_is_open() {
    let breaker = Breaker::new();
    let store =
        (0..5).fold(Scripted::new().deny(HOUR), |store, _| store.fail(ErrorKind::Infrastructure));
    let limiter = store.clone().breaker(breaker.clone()).deny_cache().max_age(HOUR);
    assert!(!limiter.check(&Charge::new("mallory")).await.unwrap().is_admitted());
    advance(SECOND).await;
    while breaker.state() == BreakerState::Closed {
        limiter.check(&one()).await.unwrap_err();
    }
    let refused = limiter.check(&Charge::new("mallory")).await.unwrap();
    assert_eq!((refused.is_admitted(), refused.origin()), (false, Origin::Cache));
    assert_eq!(breaker.counts().refused, 0);
}
