//! A switch: it turns limiters off, into a shadow, and on again.

use super::*;

#[tokio::test(start_paused = true)]
async fn off_admits_takes_nothing_and_says_so() {
    let (store, switch) = (Scripted::new().deny(HOUR).deny(HOUR), Switch::new());
    let limiter = store.clone().switch(&switch);
    assert!(!limiter.check(&one()).await.unwrap().is_admitted());
    switch.set(SwitchMode::Off);
    for _ in 0..100 {
        let decision = limiter.clone().acquire(one().cost(9).max_wait(HOUR)).await.unwrap();
        assert_eq!((decision.outcome(), decision.origin()), (Outcome::Allow, Origin::Off));
        assert!(decision.reservation().is_none() && decision.shadowed().is_none());
    }
    assert_eq!(store.charges().len(), 1);
    switch.set(SwitchMode::On);
    assert!(!limiter.check(&one()).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn in_shadow_the_limiter_is_asked_and_nobody_refused() {
    let (store, switch) = (Scripted::new().deny(HOUR).wait(SECOND), Switch::new());
    let limiter = store.clone().switch(&switch);
    switch.set(SwitchMode::Shadow);
    for expected in [Outcome::Deny { retry_after: Some(HOUR) }, Outcome::Wait(SECOND)] {
        let decision = limiter.check(&one().max_wait(SECOND)).await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Allow);
        assert_eq!(decision.shadowed().unwrap().unwrap(), expected);
    }
    assert_eq!((switch.shadow_counts().refused, switch.shadow_counts().delayed), (1, 1));
    assert!(format!("{switch:?} {limiter:?}").contains("Shadow"));
}

#[tokio::test(start_paused = true)]
async fn in_shadow_a_peek_is_not_counted() {
    let (store, switch) = (Scripted::new().allow().allow(), Switch::new());
    let limiter = store.switch(&switch);
    switch.set(SwitchMode::Shadow);
    assert!(limiter.peek("key").await.unwrap().shadowed().is_some());
    assert_eq!(switch.shadow_counts().admitted, 0);
    let _ = limiter.check(&one()).await.unwrap();
    assert_eq!(switch.shadow_counts().admitted, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_decided_as_it_was_asked() {
    let switch = Switch::new();
    let denies = |_: &Charge| async {
        tokio::time::sleep(SECOND).await;
        Ok(Decision::new(Outcome::Deny { retry_after: None }))
    };
    let limiter = denies.switch(&switch);
    let asked = held_up(limiter.check(&one()));
    switch.set(SwitchMode::Off);
    let off = limiter.check(&one());
    switch.set(SwitchMode::Shadow);
    let shadowed = limiter.check(&one());
    switch.set(SwitchMode::On);
    assert!(!asked.await.unwrap().is_admitted());
    assert_eq!(off.await.unwrap().origin(), Origin::Off);
    assert!(shadowed.await.unwrap().shadowed().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_keeps_its_slot() {
    let (store, switch) = (Scripted::new().wait(SECOND), Switch::new());
    let limiter = store.clone().switch(&switch);
    let begun = Instant::now();
    let waiter = held_up(limiter.acquire(one()));
    switch.set(SwitchMode::Off);
    let mut decision = waiter.await.unwrap();
    assert_eq!(begun.elapsed(), SECOND);
    // And what it took can be settled, although the switch is off.
    limiter.refund(decision.take_reservation().unwrap()).unwrap();
    assert_eq!(store.refunds(), [0]);
}

#[tokio::test(start_paused = true)]
async fn off_changes_nothing_but_by_a_reset() {
    let (store, switch) = (Scripted::new(), Switch::new());
    let limiter = store.clone().switch(&switch);
    switch.set(SwitchMode::Off);
    assert_eq!(limiter.penalize("key").await.unwrap().origin(), Origin::Off);
    assert_eq!(limiter.estimate("key").await.unwrap().origin(), Origin::Off);
    limiter.reset("key").await.unwrap();
    let operations: Vec<_> = store.operations().into_iter().map(|(done, _)| done).collect();
    assert_eq!(operations, [Operation::Reset]);
}

#[tokio::test(start_paused = true)]
async fn one_switch_for_many_limiters() {
    let switch = Switch::new();
    let bucket = || Memory::new("api", TokenBucket::new(Quota::per_hour(1)));
    let limiters =
        [bucket().switch(&switch).boxed(), bucket().deny_cache().switch(&switch).boxed()];
    for mode in [SwitchMode::Off, SwitchMode::Shadow, SwitchMode::On] {
        switch.clone().set(mode);
        for limiter in &limiters {
            let admitted =
                [limiter.check(&one()).await.unwrap(), limiter.check(&one()).await.unwrap()]
                    .map(|decision| decision.is_admitted());
            // The one unit was spent in shadow.
            assert_eq!(admitted, [mode != SwitchMode::On; 2], "{mode:?}");
        }
    }
    advance(HOUR).await;
    assert!(limiters[0].check(&one()).await.unwrap().is_admitted());
}

// Case 122.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_it_holds_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use support::Server;
    use support::faults::{LONG, yearly};
    use tokio::task::JoinSet;

    let server = Server::start();
    let switch = Switch::new();
    let limiter = yearly(&server.url()).decision_timeout(LONG).switch(&switch);
    let _ = limiter.check(&one()).await.expect("a connection");
    let stop = Arc::new(AtomicBool::new(false));
    let all_met = Arc::new([const { AtomicBool::new(false) }; 3]);
    // When each mode was set, from before to after.
    let mut modes = vec![(Instant::now(), Instant::now(), SwitchMode::On)];
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (limiter, stop, all_met) = (limiter.clone(), Arc::clone(&stop), Arc::clone(&all_met));
        tasks.spawn(async move {
            let mut seen = Vec::new();
            while !stop.load(Relaxed) {
                let asked = Instant::now();
                let decision = limiter.check(&one()).await.expect("a decision");
                let mode = match (decision.origin(), decision.shadowed()) {
                    (Origin::Off, _) => SwitchMode::Off,
                    (_, Some(_)) => SwitchMode::Shadow,
                    (_, None) => SwitchMode::On,
                };
                seen.push((asked, Instant::now(), mode));
                all_met[mode as usize].store(true, Relaxed);
                tokio::task::yield_now().await;
            }
            seen
        });
    }
    let cycle = [SwitchMode::Off, SwitchMode::Shadow, SwitchMode::On].into_iter().cycle();
    for (change, mode) in cycle.enumerate() {
        // On a busy machine a mode may pass before a call meets it.
        if change >= 30 && all_met.iter().all(|met| met.load(Relaxed)) {
            break;
        }
        assert!(change < 3_000, "a mode that no call meets: {all_met:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let before = Instant::now();
        switch.set(mode);
        modes.push((before, Instant::now(), mode));
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    stop.store(true, Relaxed);
    let (mut calls, mut late) = (0, Duration::ZERO);
    for (asked, answered, mode) in tasks.join_all().await.into_iter().flatten() {
        // How long before it was asked the mode that it met had ended, at the least.
        let ended = modes.iter().zip(1..).filter(|((from, ..), _)| *from <= answered);
        let ended = ended.filter(|((.., set), _)| *set == mode).map(|(_, next)| {
            modes
                .get(next)
                .map_or(Duration::ZERO, |(_, until, _)| asked.saturating_duration_since(*until))
        });
        late = late.max(ended.min().expect("a mode that was set"));
        calls += 1;
    }
    let changes = modes.len() - 1;
    println!("fault case=122 calls={calls} changes={changes} latest_us={}", late.as_micros());
    // Another core may read the clock some nanoseconds before it sees the mode.
    assert!(late < Duration::from_millis(1), "a call met a mode that had ended: {late:?}");
}
