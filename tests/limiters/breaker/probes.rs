//! The probes of an open breaker: they find out that its limiter is well again.

use super::*;

#[tokio::test(start_paused = true)]
async fn after_a_pause_one_good_probe_closes_it() {
    let (store, limiter, breaker) = opened(Breaker::new()).await;
    advance(PAUSE / 2 - Duration::from_millis(1)).await;
    assert_eq!(breaker.state(), BreakerState::Open);
    ask(&limiter, "well").await.unwrap_err();
    advance(PAUSE / 2 + Duration::from_millis(2)).await;
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    let _ = ask(&limiter, "well").await.unwrap();
    assert_eq!((store.calls(), breaker.state()), (6, BreakerState::Closed));
    assert_eq!((breaker.counts().probes, breaker.counts().opened), (1, 1));
    for _ in 0..10 {
        let _ = ask(&limiter, "well").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_differ() {
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let (_, _, breaker) = opened(Breaker::new()).await;
        let begun = Instant::now();
        while breaker.state() == BreakerState::Open {
            advance(Duration::from_millis(1)).await;
        }
        pauses.push(begun.elapsed());
    }
    assert!(pauses.iter().all(|pause| (PAUSE / 2..=PAUSE + SECOND / 500).contains(pause)));
    pauses.sort_unstable();
    pauses.dedup();
    assert!(pauses.len() > 5, "{pauses:?}");
}

/// Else an attacker that opens and drops calls keeps the gate open.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_leaves_makes_room_for_the_next() {
    let (store, limiter, breaker) = opened(Breaker::new()).await;
    advance(PAUSE).await;
    for _ in 0..100 {
        let _left = held_up(limiter.check(&Charge::new("hangs")));
        assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), ErrorKind::Infrastructure);
    }
    // One that is never polled takes no place.
    let unpolled = limiter.check(&one());
    let _ = ask(&limiter, "well").await.unwrap();
    drop(unpolled);
    assert_eq!((store.calls(), breaker.state()), (106, BreakerState::Closed));
}

/// Else a flood of empty keys keeps the gate open.
#[tokio::test(start_paused = true)]
async fn probes_that_say_nothing_do_not_keep_it_open() {
    let (_, limiter, breaker) = opened(Breaker::new()).await;
    advance(PAUSE).await;
    for key in ["invalid", "busy"] {
        for _ in 0..100 {
            ask(&limiter, key).await.unwrap_err();
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
        }
    }
    let _ = ask(&limiter, "well").await.unwrap();
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// Redis is back, and this process is flooded: load keeps no gate open.
#[tokio::test(start_paused = true)]
async fn after_a_saturated_probe_fail_open_does_not_admit() {
    let (_, limiter, breaker) = opened(Breaker::new()).await;
    let gate = limiter.clone().or_else(FailOpen);
    let _ = ask(&gate, "well").await.unwrap();
    advance(PAUSE).await;
    ask(&gate, "busy").await.unwrap_err();
    for _ in 0..100 {
        // Others ask while a probe is under way.
        let probe = held_up(limiter.check(&Charge::new("hangs")));
        assert_eq!(ask(&gate, "well").await.unwrap_err().kind(), ErrorKind::Saturation);
        drop(probe);
        ask(&gate, "busy").await.unwrap_err();
    }
    // After five errors in a row all are asked, and nobody is answered for a window: it is away.
    for _ in 0..5 {
        assert_ne!(breaker.state(), BreakerState::Closed);
        ask(&limiter, "away").await.unwrap_err();
        advance(PAUSE).await;
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    advance(SECOND).await;
    for _ in 0..5 {
        ask(&limiter, "away").await.unwrap_err();
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    let _ = ask(&gate, "well").await.unwrap();
}

/// Load can make every probe take longer than a probe may.
#[tokio::test(start_paused = true)]
async fn a_saturated_probe_that_was_given_up_keeps_no_gate_open() {
    let (_, limiter, _) = opened(Breaker::new()).await;
    advance(PAUSE).await;
    let probe = held_up(limiter.check(&Charge::new("busy after ms 800")));
    advance(SECOND * 6 / 10).await;
    let _later = held_up(limiter.check(&Charge::new("hangs")));
    assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), ErrorKind::Infrastructure);
    advance(SECOND * 3 / 10).await;
    probe.await.unwrap_err();
    assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), ErrorKind::Saturation);
}

/// A store that answers is not away: what it says must be seen, and must not fail open.
#[tokio::test(start_paused = true)]
async fn a_probe_that_the_store_refuses_closes_it() {
    for key in ["full", "unset", "corrupt"] {
        let (_, limiter, breaker) = opened(Breaker::new()).await;
        advance(PAUSE).await;
        let limiter = limiter.or_else(FailOpen);
        let error = ask(&limiter, key).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::Infrastructure);
        assert_eq!(breaker.state(), BreakerState::Closed, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_never_returns_is_given_up() {
    let (store, limiter, breaker) = opened(Breaker::new()).await;
    advance(PAUSE).await;
    let hanging = held_up(limiter.check(&Charge::new("hangs")));
    advance(SECOND / 2 - Duration::from_millis(1)).await;
    ask(&limiter, "well").await.unwrap_err();
    advance(Duration::from_millis(2)).await;
    let _ = ask(&limiter, "well").await.unwrap();
    assert_eq!((store.calls(), breaker.state()), (7, BreakerState::Closed));
    drop(hanging);
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// A store that always needs longer than a probe may take is still noticed.
#[tokio::test(start_paused = true)]
async fn an_answer_to_a_probe_that_was_given_up_closes_it() {
    let (_, limiter, breaker) = opened(Breaker::new()).await;
    advance(PAUSE).await;
    let late = held_up(limiter.check(&Charge::new("takes ms 800")));
    advance(SECOND * 6 / 10).await;
    let _later = held_up(limiter.check(&Charge::new("hangs")));
    advance(SECOND * 3 / 10).await;
    let _ = late.await.unwrap();
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// A store that dies after it was slow is away, and one that is slow after it died is loaded.
#[tokio::test(start_paused = true)]
async fn the_error_follows_the_probes() {
    let (_, limiter, breaker) = opened(Breaker::new().slow_after(SECOND / 10)).await;
    let kind = async |expected| {
        assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), expected);
    };
    kind(ErrorKind::Infrastructure).await;
    advance(PAUSE).await;
    let _ = ask(&limiter, "takes ms 300").await.unwrap();
    // Load, from the first slow probe on.
    kind(ErrorKind::Saturation).await;
    for _ in 0..5 {
        kind(ErrorKind::Saturation).await;
        advance(PAUSE).await;
        ask(&limiter, "away").await.unwrap_err();
    }
    // Some callers could make each probe fail. Then all are asked, and nobody is answered.
    for _ in 0..5 {
        assert_eq!(breaker.state(), BreakerState::Closed);
        advance(SECOND / 5).await;
        ask(&limiter, "away").await.unwrap_err();
    }
    kind(ErrorKind::Infrastructure).await;
    assert_eq!(breaker.counts().opened, 2);
}
