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
