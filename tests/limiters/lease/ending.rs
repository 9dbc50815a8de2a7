//! The end of a lease: what is unspent goes back.

use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio_test::task::Spawn;

use super::*;

const LIMIT: u64 = 1_000_000;

/// A lease of 100 units of which `spent` are spent: 100 are taken in all, besides those before.
async fn with_a_lease(spent: u64) -> Leased {
    let (limiter, inner, memory) = hot(LIMIT).await;
    for _ in 0..spent {
        assert!(check(&limiter, "hot").await.is_admitted());
    }
    assert_eq!((inner.costs(), inner.settled()), (vec![100], vec![]));
    (limiter, inner, memory)
}

/// A lease whose first refill is on its way until `inner` opens, and the caller who waits for it.
async fn refilling() -> (Leased, Spawn<<Lease<Inner> as Limiter>::Future>) {
    let (limiter, inner, memory) = hot(LIMIT).await;
    inner.close();
    let waiter = held_up(limiter.check(&Charge::new("hot")));
    yield_now().await;
    ((limiter, inner, memory), waiter)
}

#[tokio::test(start_paused = true)]
async fn units_are_not_spent_after_their_time() {
    let (limiter, inner, memory) = with_a_lease(1).await;
    for _ in 0..4 {
        advance(VALIDITY / 5).await;
        let _ = check(&limiter, "hot").await;
    }
    advance(VALIDITY / 5 - Duration::from_micros(1)).await;
    let _ = check(&limiter, "hot").await;
    assert_eq!(inner.costs(), [100]);
    advance(Duration::from_micros(1)).await;
    let _ = check(&limiter, "hot").await;
    assert_eq!(inner.costs().len(), 2);
    sleep(SECOND).await;
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 7);
}

#[tokio::test(start_paused = true)]
async fn idle_keys_get_their_units_back_and_leave_nothing() {
    let (limiter, inner, memory) = with_a_lease(7).await;
    sleep(VALIDITY + VALIDITY / 2).await;
    assert_eq!(inner.settled(), [(100, 7)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 7);
    sleep(SECOND).await;
    // No task is left for keys that nobody asks for.
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(inner.settled().len(), 1);
    drop(limiter);
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_returns_all_units_and_ends_all_tasks() {
    let (limiter, inner, memory) = with_a_lease(7).await;
    let clone = limiter.clone();
    drop(limiter);
    assert_eq!(inner.settled(), []);
    drop(clone);
    assert_eq!(inner.settled(), [(100, 7)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 7);
    yield_now().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

/// A refill that comes when the limiter has gone.
#[tokio::test(start_paused = true)]
async fn a_late_refill_is_returned() {
    let ((limiter, inner, memory), waiter) = refilling().await;
    drop((waiter, limiter));
    inner.open();
    sleep(SECOND).await;
    assert_eq!(inner.settled(), [(100, 0)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM);
}

#[tokio::test(start_paused = true)]
async fn another_quota_of_the_key_ends_its_lease() {
    let (limiter, inner, memory) = with_a_lease(7).await;
    let plan = Quota::per_hour(2 * LIMIT);
    assert_eq!(limiter.check(&Charge::new("hot").quota(plan)).await.unwrap().quota(), Some(plan));
    assert_eq!((inner.costs(), inner.settled()), (vec![100, 1], vec![(100, 7)]));
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 8);
}

/// The units of a refill under the old quota are not spent under the new one.
#[tokio::test(start_paused = true)]
async fn a_refill_under_another_quota_is_returned() {
    let ((limiter, inner, memory), waiter) = refilling().await;
    let plan = Charge::new("hot").quota(Quota::per_hour(2 * LIMIT));
    let upgraded = held_up(limiter.check(&plan));
    inner.open();
    assert!(upgraded.await.unwrap().is_admitted());
    assert!(waiter.await.unwrap().is_admitted());
    sleep(SECOND).await;
    assert_eq!((inner.costs(), inner.settled()), (vec![100, 1, 1], vec![(100, 0)]));
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 2);
}

#[tokio::test(start_paused = true)]
async fn penalty_ends_the_lease_first() {
    let (limiter, inner, memory) = with_a_lease(7).await;
    limiter.penalize(Charge::new("hot").cost(LIMIT)).await.unwrap();
    assert_eq!(inner.settled(), [(100, 7)]);
    assert!(!check(&limiter, "hot").await.is_admitted());
    assert_eq!(taken(&memory, LIMIT, "hot").await, LIMIT);
}

#[tokio::test(start_paused = true)]
async fn reset_forgets_leased_units() {
    let (limiter, inner, memory) = with_a_lease(7).await;
    assert_eq!(limiter.reset("hot").await.unwrap().remaining(), Some(LIMIT));
    // Neither spent nor refunded after the reset.
    for _ in 0..10 {
        let _ = check(&limiter, "hot").await;
    }
    sleep(SECOND).await;
    assert!(inner.settled().iter().all(|(cost, _)| *cost < 100), "{:?}", inner.settled());
    assert_eq!(taken(&memory, LIMIT, "hot").await, 10);
}

/// A part of a lease, and all of it, which no lease holds any more.
#[tokio::test(start_paused = true)]
async fn no_charge_of_before_a_reset_takes_more_after_it() {
    for spent in [7, 100] {
        let (limiter, _, memory) = hot(LIMIT).await;
        let old = spend(&limiter, spent).await;
        // A refill that is under way has arrived.
        sleep(Duration::from_millis(1)).await;
        limiter.reset("hot").await.unwrap();
        let _ = check(&limiter, "hot").await;
        for reservation in old {
            assert!(limiter.settle(reservation, 9).is_ok());
        }
        limiter.end_leases();
        sleep(SECOND).await;
        assert_eq!(taken(&memory, LIMIT, "hot").await, 1);
    }
}

/// The lease does not know of the reset: its key was idle, or blocked, or another process reset it.
#[tokio::test(start_paused = true)]
async fn the_store_knows_of_every_reset() {
    for way in ["idle", "blocked", "another process"] {
        let (limiter, _, memory) = hot(LIMIT).await;
        let old = spend(&limiter, 7).await;
        match way {
            "idle" => sleep(SECOND).await,
            "blocked" => {
                limiter.block("hot", SECOND).await.unwrap();
                limiter.unblock("hot").await.unwrap();
            }
            _ => {
                limiter.end_leases();
                memory.reset("hot").await.unwrap();
            }
        }
        if way != "another process" {
            limiter.reset("hot").await.unwrap();
        }
        for reservation in old {
            let settled = limiter.settle(reservation, 9).expect("its own").await.unwrap();
            assert_eq!(settled.not_taken, 8, "{way}");
        }
        sleep(SECOND).await;
        assert_eq!(taken(&memory, LIMIT, "hot").await, 0, "{way}");
    }
}

/// The units of a new life do not pay for a charge of an old one.
#[tokio::test(start_paused = true)]
async fn a_lease_of_after_a_reset_pays_for_nothing_before_it() {
    let (limiter, _, memory) = hot(LIMIT).await;
    let old = spend(&limiter, 100).await;
    memory.reset("hot").await.unwrap();
    for _ in 0..300 {
        let _ = check(&limiter, "hot").await;
        yield_now().await;
    }
    for reservation in old {
        assert!(limiter.settle(reservation, 9).is_ok());
    }
    sleep(SECOND).await;
    limiter.end_leases();
    assert!((1..=300).contains(&taken(&memory, LIMIT, "hot").await));
}

/// A quota that the store cannot read.
#[tokio::test(start_paused = true)]
async fn a_reset_that_fails_forgives_nothing() {
    let (limiter, inner, memory) = with_a_lease(1).await;
    let old = spend(&limiter, 7).await;
    let quota = Quota::per_hour(LIMIT);
    limiter.reset(Charge::new("hot").quota((quota, quota))).await.unwrap_err();
    for reservation in old {
        limiter.settle(reservation, 9).expect("its own").await.unwrap();
    }
    sleep(SECOND).await;
    assert_eq!(inner.settled(), []);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 100 + 7 * 8);
}

/// Units that requests hold while their key is reset, and that they give back after it.
#[tokio::test(start_paused = true)]
async fn units_of_before_a_reset_are_not_spent_after_it() {
    let (limiter, _, memory) = hot(LIMIT).await;
    let held = spend(&limiter, 20).await;
    limiter.reset("hot").await.unwrap();
    // The key is watched again, before its old units come back.
    assert!(check(&limiter, "hot").await.is_admitted());
    for reservation in held {
        let settlement = limiter.settle(reservation, 0).expect("it is the lease's own");
        settlement.await.unwrap();
    }
    for _ in 0..30 {
        assert!(check(&limiter, "hot").await.is_admitted());
    }
    limiter.end_leases();
    assert_eq!(taken(&memory, LIMIT, "hot").await, 31);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_no_units_of_other_keys() {
    let (limiter, inner, memory) = leased(LIMIT);
    // So few keys are under one lock.
    let limiter = limiter.max_keys(10);
    warm_up(&limiter, &inner, "hot").await;
    limiter.reset("other").await.unwrap();
    let _ = check(&limiter, "hot").await;
    assert_eq!(inner.costs(), [100]);
    limiter.end_leases();
    assert_eq!(inner.settled(), [(100, 1)]);
    assert_eq!(taken(&memory, LIMIT, "hot").await, WARM + 1);
}

/// A refill that may be decided before the reset, and arrives after it.
#[tokio::test(start_paused = true)]
async fn reset_forgets_units_on_their_way() {
    let ((limiter, inner, memory), waiter) = refilling().await;
    let reset = held_up(limiter.reset("hot"));
    // Until the reset has ended, every charge asks alone.
    for _ in 0..20 {
        assert_pending!(task::spawn(limiter.check(&Charge::new("hot"))).poll());
    }
    assert_eq!(inner.costs(), [vec![100], vec![1; 20]].concat());
    inner.open();
    reset.await.unwrap();
    assert!(waiter.await.unwrap().is_admitted());
    sleep(SECOND).await;
    assert_eq!(inner.settled(), []);
    // What the refill took counts, whichever came first: it is lost, and never spent twice.
    assert!(taken(&memory, LIMIT, "hot").await <= 101);
}

/// A reset that the caller did not wait for may come later: until then nothing is leased.
#[tokio::test(start_paused = true)]
async fn after_a_reset_in_doubt_nothing_is_leased_for_a_while() {
    let (limiter, inner, _) = hot(LIMIT).await;
    inner.close();
    let reset = held_up(limiter.reset("hot"));
    drop(reset);
    inner.open();
    for _ in 0..50 {
        let _ = check(&limiter, "hot").await;
    }
    assert_eq!(inner.costs(), [1; 50]);
    sleep(VALIDITY).await;
    for _ in 0..50 {
        let _ = check(&limiter, "hot").await;
    }
    assert!(inner.costs().len() < 75, "{:?}", inner.costs());
}

#[tokio::test(start_paused = true)]
async fn estimates_and_peeks_count_leased_units_as_taken() {
    let (limiter, inner, _) = with_a_lease(7).await;
    let left = Some(LIMIT - WARM - 100);
    assert_eq!(limiter.peek("hot").await.unwrap().remaining(), left);
    assert_eq!(limiter.estimate("hot").await.unwrap().remaining(), left);
    assert_eq!(inner.costs(), [100, 0]);
}

/// Nothing is refunded that the inner limiter cannot refund: a closure loses what is unspent.
#[tokio::test(start_paused = true)]
async fn closures_lose_units_and_never_admit_more() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    let left = Arc::new(AtomicU64::new(1_000));
    let take = move |charge: &Charge| {
        let cost = charge.units();
        let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(cost));
        std::future::ready(Ok::<_, Error>(match taken {
            Ok(_) => tower_sluice::Outcome::Allow.into(),
            Err(_) => tower_sluice::Outcome::Deny { retry_after: None }.into(),
        }))
    };
    let limiter = take.lease(100);
    let mut admitted = 0;
    for round in 0..20 {
        for _ in 0..100 {
            let decision = check(&limiter, "hot").await;
            assert!(decision.reservation().is_none());
            admitted += u64::from(decision.is_admitted());
        }
        if round % 2 == 0 {
            sleep(SECOND).await;
        }
    }
    assert!((700..=1_000).contains(&admitted), "{admitted}");
}

/// A limiter that reserves a wait although it was asked for none.
#[tokio::test(start_paused = true)]
async fn a_refill_that_would_wait_is_refunded() {
    let script = tower_sluice::testing::Scripted::new();
    let script = (0..8).fold(script, |script, _| script.allow());
    let script = script.decide(tower_sluice::Outcome::Wait(SECOND)).allow();
    let limiter = script.clone().lease(100);
    let mut last = None;
    while script.left() > 0 {
        last = Some(check(&limiter, "hot").await);
    }
    assert!(last.is_some_and(|last| last.is_admitted()));
    let waited = script.charges().len() - 2;
    assert_eq!(script.refunds(), [waited]);
}
