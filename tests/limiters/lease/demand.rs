//! The units of a lease: as many as the key is worth, and no more.

use super::recorder::Recorder;

use super::*;

#[tokio::test(start_paused = true)]
async fn cold_keys_cost_what_they_cost_without_a_lease() {
    let (limiter, inner, memory) = leased(10);
    for round in 1..=3 {
        for key in 0..50 {
            let key = key.to_string();
            let mut decision = check(&limiter, &key).await;
            assert_eq!(decision.remaining(), Some(10 - round));
            // The inner limiter's own reservation, which it refunds whenever that is possible.
            let reservation = decision.take_reservation().expect("units");
            assert!(memory.clone().settle(reservation, 1).is_ok());
        }
        advance(SECOND).await;
    }
    sleep(SECOND).await;
    assert_eq!((inner.costs(), inner.settled()), (vec![1; 150], vec![]));
}

#[tokio::test(start_paused = true)]
async fn hot_key_asks_once_for_a_hundred_charges() {
    let (limiter, inner, memory) = leased(1_000_000);
    for _ in 0..10_000 {
        assert!(check(&limiter, "hot").await.is_admitted());
    }
    let costs = inner.costs();
    assert!(costs.len() < 120, "{} calls", costs.len());
    assert!(costs.iter().all(|cost| *cost <= 100), "{costs:?}");
    sleep(SECOND).await;
    assert_eq!(taken(&memory, 1_000_000, "hot").await, 10_000);
}

#[tokio::test(start_paused = true)]
async fn lease_has_half_of_what_its_key_used_lately() {
    let (limiter, inner, memory) = leased(1_000_000);
    // 40 charges in 100 ms.
    for _ in 0..400 {
        let _ = check(&limiter, "warm").await;
        advance(Duration::from_micros(2_500)).await;
    }
    assert!(inner.costs().iter().all(|cost| *cost <= 21), "{:?}", inner.costs());
    assert!(inner.costs().len() < 60, "{} calls", inner.costs().len());
    // Demand falls: the key asks unit by unit again.
    sleep(SECOND).await;
    inner.clear();
    for _ in 0..20 {
        let _ = check(&limiter, "warm").await;
        advance(Duration::from_millis(60)).await;
    }
    assert_eq!((inner.costs(), inner.settled()), (vec![1; 20], vec![]));
    assert_eq!(taken(&memory, 1_000_000, "warm").await, 420);
}

#[tokio::test(start_paused = true)]
async fn last_units_are_admitted_and_a_refusal_costs_one_call() {
    for limit in [1, 2, 3, 10, 99, 1_000] {
        let (limiter, inner, _) = leased(limit);
        for admitted in 0..limit {
            assert!(check(&limiter, "hot").await.is_admitted(), "{admitted} of {limit}");
        }
        inner.clear();
        for _ in 0..100 {
            let refused = check(&limiter, "hot").await;
            assert!(refused.retry_after().is_some_and(|wait| wait > 3_599 * SECOND), "{refused:?}");
        }
        assert_eq!(inner.costs(), [1; 100], "{limit}");
    }
}

/// A bucket that is nearly empty all the time admits all that it would admit without a lease.
#[tokio::test(start_paused = true)]
async fn a_saturated_bucket_is_used_up() {
    let memory = Memory::new("api", TokenBucket::new(Quota::per_second(1_000).burst(50)));
    let inner = Recorder::new(memory);
    let limiter = inner.clone().lease(100);
    let mut admitted = 0;
    for _ in 0..4_000 {
        for cost in [1, 3] {
            let charge = Charge::new("hot").cost(cost);
            let decision = limiter.check(&charge).await.expect("a decision");
            admitted += if decision.is_admitted() { cost } else { 0 };
        }
        advance(Duration::from_millis(1)).await;
    }
    let settled: u64 = inner.settled().iter().map(|(cost, actual)| cost - actual).sum();
    let wasted = inner.costs().iter().sum::<u64>() - settled;
    assert!((3_900..=4_050).contains(&admitted), "{admitted} of 4,050, {wasted} asked for");
}

#[tokio::test(start_paused = true)]
async fn charges_of_many_units_are_served_or_ask_alone() {
    let (limiter, inner, memory) = leased(1_000_000);
    let mut admitted = 0;
    for round in 0..2_000 {
        let cost = [1, 7, 2, 30][round % 4];
        let decision = limiter.check(&Charge::new("hot").cost(cost)).await.expect("a decision");
        assert!(decision.is_admitted());
        admitted += cost;
    }
    assert!(inner.costs().len() < 400, "{} calls", inner.costs().len());
    inner.clear();
    for cost in [0, 100, 5_000] {
        let _ = limiter.check(&Charge::new("hot").cost(cost)).await.expect("a decision");
    }
    assert_eq!(inner.costs(), [0, 100, 5_000]);
    sleep(SECOND).await;
    assert_eq!(taken(&memory, 1_000_000, "hot").await, admitted + 5_100);
}

// Case 92.
#[tokio::test(start_paused = true)]
async fn keys_beyond_the_most_ask_alone_until_others_are_idle() {
    let memory = Memory::new("api", FixedWindow::new(Quota::per_hour(1_000_000)));
    let inner = Recorder::new(memory);
    let limiter = inner.clone().lease(100).max_keys(2);
    let calls = async |key: &str| {
        let before = inner.costs().len();
        for _ in 0..1_000 {
            let _ = check(&limiter, key).await;
        }
        inner.costs().len() - before
    };
    assert!(calls("a").await < 50);
    assert!(calls("b").await < 50);
    assert_eq!(calls("c").await, 1_000);
    sleep(SECOND).await;
    assert!(calls("c").await < 50);
}

/// The units that are reported as left include those that this process has leased.
#[tokio::test(start_paused = true)]
async fn report_counts_down_unit_by_unit() {
    let (limiter, inner, _) = leased(10_000);
    for admitted in 1..=5_000 {
        let decision = check(&limiter, "hot").await;
        assert_eq!(decision.remaining(), Some(10_000 - admitted));
        assert_eq!(decision.limiter(), Some("api"));
        assert_eq!(decision.quota(), Some(Quota::per_hour(10_000)));
        assert!(decision.reset_after().is_some_and(|reset| reset <= 3_600 * SECOND));
        assert_eq!(decision.reservation().map(tower_sluice::limiter::Reservation::cost), Some(1));
    }
    assert!(inner.costs().len() < 100);
}

/// The sums of such costs have no meaning, and no end.
#[tokio::test(start_paused = true)]
async fn costs_beyond_every_sum_are_decided() {
    let inner = |_: &Charge| ready(Ok(Decision::new(Outcome::Allow)));
    let limiter = inner.lease(u64::MAX);
    for _ in 0..50 {
        let charge = Charge::new("a").cost(u64::MAX - 1);
        assert!(limiter.check(&charge).await.unwrap().is_admitted());
    }
}
