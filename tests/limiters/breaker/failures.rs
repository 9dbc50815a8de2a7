//! The failures that open a breaker, those that do not, and the treatment of its own error.

use super::*;

#[tokio::test(start_paused = true)]
async fn five_failures_open_it_and_the_next_calls_are_answered_at_once() {
    let (store, limiter, breaker) = opened(Breaker::new()).await;
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), ErrorKind::Infrastructure);
    }
    assert_eq!((store.calls(), breaker.counts().refused), (5, 100));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // One that is never polled is no call.
    drop(limiter.check(&one()));
    assert_eq!(breaker.counts().refused, 100);
}

// Case 118.
#[tokio::test(start_paused = true)]
async fn only_errors_that_no_request_can_cause_open_it() {
    for key in ["busy", "full", "unset", "corrupt", "invalid"] {
        let (store, breaker) = (Store::default(), Breaker::new());
        let limiter = store.limiter().breaker(breaker.clone());
        for _ in 0..100 {
            ask(&limiter, key).await.unwrap_err();
        }
        assert_eq!((store.calls(), breaker.state()), (100, BreakerState::Closed), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn its_error_is_treated_as_the_one_that_opened_it() {
    let (_, limiter, _) = opened(Breaker::new()).await;
    let refused = ask(&limiter, "well").await.unwrap_err();
    let cause = std::error::Error::source(&refused).expect("the last failure");
    assert_eq!(cause.to_string(), "as the charge says");
    assert_eq!(ask(&limiter.or_else(FailOpen), "well").await.unwrap().origin(), Origin::FailOpen);
}

/// Load can make a store slow. So it may not fail open.
#[tokio::test(start_paused = true)]
async fn slow_calls_open_it_and_fail_open_does_not_admit() {
    let (limiter, breaker) = closed(Breaker::new().slow_after(SECOND));
    for _ in 0..5 {
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(ask(&limiter, "takes ms 1500").await.unwrap().is_admitted());
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), ErrorKind::Saturation);
    assert!(ask(&limiter.clone().or_else(FailOpen), "well").await.is_err());
    assert!(ask(&limiter.or_else(Store::default().limiter()), "well").await.is_ok());
}

/// The figure at the head of `breaker_call.rs`.
#[tokio::test(start_paused = true)]
async fn slow_calls_delay_few_callers() {
    for (breaker, delayed) in [
        (Breaker::new(), 1_000..1_001),
        (Breaker::new().slow_after(Duration::from_millis(50)), 5..100),
    ] {
        let share = |_: &Charge| std::future::ready(Ok::<_, Error>(Decision::new(Outcome::Allow)));
        let limiter = Store::default().limiter().breaker(breaker).or_else(share);
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                let begun = Instant::now();
                let call = limiter.check(&Charge::new("takes ms 80"));
                call.await.map(|_| begun.elapsed())
            });
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let waits = callers.join_all().await;
        let slow = waits.into_iter().filter(|wait| *wait.as_ref().unwrap() > Duration::ZERO);
        let slow = slow.count();
        assert!(delayed.contains(&slow), "{slow}");
    }
}

#[tokio::test(start_paused = true)]
async fn fast_calls_and_those_of_a_busy_process_are_not_slow() {
    let (limiter, breaker) = closed(Breaker::new().slow_after(SECOND));
    for _ in 0..20 {
        let _ = ask(&limiter, "takes ms 990").await.unwrap();
    }
    for _ in 0..20 {
        // The timer fires late.
        let call = held_up(limiter.check(&Charge::new("takes ms 2500")));
        advance(2 * SECOND).await;
        let _ = call.await.unwrap();
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// As with an own limiter that ignores its deadline: the timer's error says nothing, the time does.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_hangs_is_slow() {
    let breaker = Breaker::new().slow_after(SECOND / 2);
    let limiter = Store::default().limiter().timeout(SECOND).breaker(breaker.clone());
    for _ in 0..5 {
        assert_eq!(ask(&limiter, "hangs").await.unwrap_err().kind(), ErrorKind::Saturation);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn callers_that_leave_a_slow_call_count() {
    let (limiter, breaker) = closed(Breaker::new().slow_after(SECOND));
    for _ in 0..20 {
        let left = tokio::time::timeout(SECOND / 2, ask(&limiter, "hangs")).await;
        assert!(left.is_err());
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    for _ in 0..5 {
        let left = tokio::time::timeout(2 * SECOND, ask(&limiter, "hangs")).await;
        assert!(left.is_err());
    }
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// One of three nodes of a cluster is away: the others are still asked.
#[tokio::test(start_paused = true)]
async fn a_third_of_the_calls_does_not_open_it() {
    let (limiter, breaker) = closed(Breaker::new());
    for call in 0..1_000 {
        let _ = ask(&limiter, if call % 3 == 0 { "away" } else { "well" }).await;
        advance(Duration::from_millis(7)).await;
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// Part of a cluster is away, and an attacker chooses keys there: that opens no gate for others.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_some_calls_is_not_away() {
    let (limiter, breaker) = closed(Breaker::new());
    let _ = ask(&limiter, "well").await.unwrap();
    let mut refused = 0;
    for _ in 0..2_000 {
        for _ in 0..20 {
            let _ = ask(&limiter, "away").await;
        }
        if let Err(error) = ask(&limiter, "well").await {
            assert_eq!(error.kind(), ErrorKind::Saturation);
            refused += 1;
        }
        advance(Duration::from_millis(7)).await;
    }
    // It spares callers the timeout all the same.
    assert!(breaker.counts().opened > 0 && refused > 0, "{breaker:?}");
}

/// One good probe does not make the next five failures those of a store that is away.
#[tokio::test(start_paused = true)]
async fn after_an_answer_it_takes_a_window_of_silence() {
    let (_, limiter, breaker) = opened(Breaker::new()).await;
    advance(PAUSE).await;
    let _ = ask(&limiter, "well").await.unwrap();
    for _ in 0..100 {
        ask(&limiter, "away").await.unwrap_err();
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    advance(SECOND).await;
    ask(&limiter, "away").await.unwrap_err();
    assert_eq!(breaker.state(), BreakerState::Open);
    assert_eq!(ask(&limiter, "well").await.unwrap_err().kind(), ErrorKind::Infrastructure);
}

/// A store that falls silent after many good calls is left once those are out of the window.
#[tokio::test(start_paused = true)]
async fn good_calls_count_for_a_window() {
    let (limiter, breaker) = closed(Breaker::new());
    for _ in 0..10_000 {
        let _ = ask(&limiter, "well").await.unwrap();
    }
    let begun = Instant::now();
    while breaker.state() == BreakerState::Closed {
        ask(&limiter, "away").await.unwrap_err();
        advance(Duration::from_millis(10)).await;
    }
    let open_after = begun.elapsed();
    assert!(open_after > SECOND * 9 / 10 && open_after <= SECOND + SECOND / 10, "{open_after:?}");
}

#[tokio::test(start_paused = true)]
async fn where_calls_are_rare_failures_in_a_row_open_it() {
    let (limiter, breaker) = closed(Breaker::new());
    for key in ["away", "away", "away", "away", "well", "away", "away", "away", "away"] {
        let _ = ask(&limiter, key).await;
        advance(HOUR).await;
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
    ask(&limiter, "away").await.unwrap_err();
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// Callers whose refusal is repeated do not hide that the store is away.
#[tokio::test(start_paused = true)]
async fn answers_that_asked_nobody_say_nothing() {
    for origin in [Origin::Cache, Origin::FailOpen] {
        let answer = move |charge: &Charge| {
            std::future::ready(match charge.key() {
                "away" => Err(error(ErrorKind::Infrastructure)),
                _ => Ok(Decision::new(Outcome::Allow).with_origin(origin)),
            })
        };
        let breaker = Breaker::new();
        let limiter = answer.breaker(breaker.clone());
        for _ in 0..5 {
            for _ in 0..100 {
                let _ = ask(&limiter, "refused").await.unwrap();
            }
            ask(&limiter, "away").await.unwrap_err();
        }
        assert_eq!(breaker.state(), BreakerState::Open, "{origin:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_take_every_value() {
    let extremes = [
        Breaker::new().min_failures(0).failure_percent(0).window(Duration::ZERO),
        Breaker::new().min_failures(1).failure_percent(255).window(Duration::MAX),
        Breaker::new().min_failures(1).pause(Duration::ZERO).slow_after(Duration::ZERO),
        Breaker::new().min_failures(1).pause(Duration::MAX).slow_after(Duration::MAX),
    ];
    for breaker in extremes {
        let limiter = Store::default().limiter().breaker(breaker.clone());
        let _ = ask(&limiter, "well").await.unwrap();
        ask(&limiter, "away").await.unwrap_err();
        for _ in 0..3 {
            advance(HOUR).await;
            let _ = ask(&limiter, "takes ms 1").await;
            assert!(!format!("{breaker:?} {limiter:?}").is_empty());
        }
    }
}
