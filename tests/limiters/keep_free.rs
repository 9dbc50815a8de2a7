//! Units that a charge leaves free: it is admitted only if they are left, and takes its cost alone.

use tower_sluice::limiter::AllInTurn;

use super::*;

async fn ask(limiter: &impl Limiter, cost: u64, keep_free: u64) -> Decision {
    let charge = Charge::new("acme").cost(cost).keep_free(keep_free);
    limiter.check(&charge).await.expect("a decision")
}

/// What every algorithm does with ten units.
async fn leaves_units_to_others(limiter: &impl Limiter, name: &str) {
    let admitted = ask(limiter, 4, 3).await;
    assert_eq!((admitted.is_admitted(), admitted.remaining()), (true, Some(6)), "{name}");
    assert_eq!(admitted.kept_free(), 3, "{name}");
    // Four of six leave two, and two others are kept.
    let refused = ask(limiter, 4, 3).await;
    assert!(!refused.is_admitted() && refused.retry_after() > Some(Duration::ZERO), "{name}");
    assert_eq!(refused.remaining(), Some(6), "a refusal takes nothing: {name}");
    let never = ask(limiter, 4, 7).await;
    assert_eq!(never.outcome(), Outcome::Deny { retry_after: None }, "{name}");
    let most = ask(limiter, 1, u64::MAX).await;
    assert_eq!(most.outcome(), Outcome::Deny { retry_after: None }, "{name}");
    assert!(limiter.peek(Charge::new("acme").keep_free(6)).await.unwrap().is_admitted(), "{name}");
    assert!(!limiter.peek(Charge::new("acme").keep_free(7)).await.unwrap().is_admitted(), "{name}");
    let estimate = limiter.estimate(Charge::new("acme").cost(4).keep_free(3)).await;
    assert!(!estimate.unwrap().is_admitted(), "{name}");
    assert!(ask(limiter, 3, 3).await.is_admitted(), "{name}");
    assert!(ask(limiter, 3, 0).await.is_admitted(), "{name}");
    assert!(!ask(limiter, 1, 1).await.is_admitted(), "{name}");
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_leaves_units_to_others() {
    for algorithm in each(Quota::per_hour(10)) {
        // Its permits are there, but take time.
        if matches!(algorithm, AnyAlgorithm::SmoothWarmingUp(_)) {
            continue;
        }
        let name = format!("{algorithm:?}");
        let limiter = Memory::new("api", algorithm);
        assert_eq!(limiter.peek("acme").await.unwrap().remaining(), Some(10), "{name}");
        leaves_units_to_others(&limiter, &name).await;
    }
}

// Cases of others.

/// Stripe reserves 20 % of its workers for critical requests: others are refused over the rest.
#[tokio::test(start_paused = true)]
async fn a_fifth_of_what_runs_at_once_is_for_critical_requests() {
    let fleet = Memory::new("fleet", Concurrency::new(10));
    let mut running = Vec::new();
    for _ in 0..8 {
        running.push(ask(&fleet, 1, 2).await);
    }
    assert!(running.iter().all(Decision::is_admitted));
    assert!(!ask(&fleet, 1, 2).await.is_admitted());
    let critical = [ask(&fleet, 1, 0).await, ask(&fleet, 1, 0).await];
    assert!(critical.iter().all(Decision::is_admitted));
    assert!(!ask(&fleet, 1, 0).await.is_admitted());
    // Two that end make room for critical requests, a third one for others.
    for (ended, others_pass) in running.into_iter().zip([false, false, true]) {
        let reservation = ended.into_reservation().expect("it holds one");
        fleet.settle(reservation, 0).expect("its own").await.unwrap();
        assert_eq!(ask(&fleet, 1, 2).await.is_admitted(), others_pass);
    }
}

/// PostHog's lane for batches: a backfill leaves half of each window to interactive calls, and all
/// share one budget. What nobody leaves free is open to all.
#[tokio::test(start_paused = true)]
async fn a_backfill_does_not_drain_the_hour_of_interactive_calls() {
    let windows = (Quota::per_minute(60), Quota::per_hour(300));
    let windows = (SlidingLog::new(windows.0), SlidingLog::new(windows.1));
    let github = Memory::new("github", windows);
    let mut backfills = 0;
    for minute in 0..60 {
        let backfill = Charge::new("install-7").keep_free((30, 150));
        while github.check(&backfill).await.unwrap().is_admitted() {
            backfills += 1;
        }
        let interactive = Charge::new("install-7").cost(2);
        assert!(github.check(&interactive).await.unwrap().is_admitted(), "minute {minute}");
        advance(60 * SECOND).await;
    }
    // Four minutes of 30, and what the hour then has above its half.
    assert_eq!(backfills, 4 * 30 + 22);
}

/// The slot is where the cost and the units that stay free fit. In a bucket others go before it.
#[tokio::test(start_paused = true)]
async fn a_wait_leaves_units_free_at_its_slot() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(1).burst(10)));
    assert!(ask(&limiter, 8, 0).await.is_admitted());
    let patient = Charge::new("acme").keep_free(4).max_wait(10 * SECOND);
    let waits = limiter.check(&patient).await.unwrap();
    assert_eq!(waits.outcome(), Outcome::Wait(3 * SECOND));
    assert!(ask(&limiter, 1, 0).await.is_admitted());
    advance(3 * SECOND).await;
    // Ten, less eight, less one for each of the two, and three more.
    assert_eq!(limiter.peek("acme").await.unwrap().remaining(), Some(3));
}

/// In a smooth limiter, permits are stored until the slot, and a waiter who leaves gives all back.
#[tokio::test(start_paused = true)]
async fn a_smooth_limiter_stores_permits_until_the_slot() {
    let ten_seconds = 10 * SECOND;
    let each: [AnyAlgorithm; 3] = [
        SmoothBursty::new(Quota::per_second(1)).max_burst(ten_seconds).into(),
        SmoothBursty::new(Quota::per_second(1)).max_burst(ten_seconds).wait_for_own_cost().into(),
        SmoothWarmingUp::new(Quota::per_second(1), ten_seconds).cold_factor(1.0).into(),
    ];
    for algorithm in each {
        let limiter = Memory::new("api", algorithm);
        let all = limiter.peek("acme").await.unwrap().remaining().expect("reported");
        assert!(ask(&limiter, all - 2, 0).await.is_admitted());
        advance(20 * SECOND).await;
        assert!(ask(&limiter, all - 2, 0).await.is_admitted(), "{algorithm:?}");
        let left = || async { limiter.peek("acme").await.unwrap().remaining() };
        advance(SECOND / 2).await;
        let before = left().await;
        let patient = Charge::new("acme").keep_free(4).max_wait(60 * SECOND);
        let mut waits = limiter.check(&patient).await.unwrap();
        let Outcome::Wait(wait) = waits.outcome() else { panic!("{algorithm:?}: {waits:?}") };
        let given = limiter.settle(waits.take_reservation().unwrap(), 0).unwrap().await.unwrap();
        assert_eq!((given.given_back, left().await), (1, before), "{algorithm:?}");
        let again = limiter.check(&patient).await.unwrap();
        assert_eq!(again.outcome(), Outcome::Wait(wait), "{algorithm:?}");
        advance(wait).await;
        if let AnyAlgorithm::SmoothWarmingUp(_) = algorithm {
            // A stored permit takes time there, and nothing is stored meanwhile.
            advance(SECOND).await;
        }
        assert_eq!(left().await, Some(4), "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_quota_of_a_tuple_keeps_its_own_units() {
    let quotas = (Quota::per_second(10), Quota::per_day(1_000));
    let api = (TokenBucket::new(quotas.0), FixedWindow::new(quotas.1).anchored());
    let api = Memory::new("api", api);
    let job = |cost| Charge::new("acme").cost(cost).keep_free((2, 200));
    assert!(api.check(&job(8)).await.unwrap().is_admitted());
    let refused = api.check(&job(1)).await.unwrap();
    assert_eq!(refused.retry_after(), Some(SECOND / 10));
    let kept: Vec<_> = refused.policies().map(|one| one.kept_free()).collect();
    assert_eq!(kept, [2, 200]);
    // One number goes for both, and is more than the first ever has.
    let never = api.check(&Charge::new("acme").keep_free(200)).await.unwrap();
    assert_eq!(never.outcome(), Outcome::Deny { retry_after: None });
    let wrong = api.check(&Charge::new("acme").keep_free((1, 2, 3))).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Configuration);
}

/// A refusal of a charge that leaves units free says nothing about others.
#[tokio::test(start_paused = true)]
async fn a_deny_cache_refuses_only_who_leaves_as_much_free() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_hour(10))).deny_cache();
    assert!(ask(&limiter, 5, 0).await.is_admitted());
    assert!(!ask(&limiter, 2, 4).await.is_admitted());
    assert_eq!(ask(&limiter, 2, 4).await.origin(), Origin::Cache);
    assert_eq!(ask(&limiter, 2, 5).await.origin(), Origin::Cache);
    assert!(ask(&limiter, 2, 3).await.is_admitted());
    assert!(!ask(&limiter, 2, 4).await.is_admitted());
    assert!(ask(&limiter, 2, 0).await.is_admitted());
}

/// Leased units count as taken, and no charge that leaves units free takes them.
#[tokio::test(start_paused = true)]
async fn a_lease_counts_as_taken() {
    let store = Memory::new("api", TokenBucket::new(Quota::per_hour(1_000)));
    let limiter = store.clone().lease(100).valid_for(10 * SECOND);
    for _ in 0..200 {
        assert!(ask(&limiter, 1, 0).await.is_admitted());
    }
    let left = store.peek("acme").await.unwrap().remaining().expect("reported");
    assert!(left < 800, "nothing was leased");
    assert!(!ask(&limiter, 1, left).await.is_admitted());
    assert!(ask(&limiter, 1, left - 1).await.is_admitted());
    assert_eq!(store.peek("acme").await.unwrap().remaining(), Some(left - 1));
}

#[tokio::test(start_paused = true)]
async fn members_in_turn_leave_units_free() {
    let user = Memory::new("user", TokenBucket::new(Quota::per_hour(10)));
    let all = Memory::new("all", TokenBucket::new(Quota::per_hour(100)));
    let both = AllInTurn::new([user.clone().boxed(), all.clone().boxed()], |charge: &Charge| {
        [charge.clone(), Charge::new("all").keep_free(95)]
    });
    // The whole charge leaves two of each member free, unless a member says more.
    assert!(ask(&both, 5, 2).await.is_admitted());
    let refused = ask(&both, 3, 2).await;
    assert!(!refused.is_admitted());
    assert_eq!(user.peek("acme").await.unwrap().remaining(), Some(5));
    assert_eq!(all.peek("all").await.unwrap().remaining(), Some(95));
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn members_of_one_call_leave_units_free() {
    use tower_sluice::redis::AllAtOnce;
    let (_server, pool) = Server::pooled();
    let bucket = |units| TokenBucket::new(Quota::new(units, 1_000 * HOUR));
    let user = Redis::new("user", bucket(10), pool.clone());
    let all = Redis::new("all", bucket(100), pool.clone());
    for (run, cost_of_all) in [(0, 5), (1, 4)] {
        let keys = move |charge: &Charge| {
            let all = Charge::new(format!("all-{run}")).cost(cost_of_all).keep_free(95);
            let user = Charge::new(format!("{}-{run}", charge.key())).cost(charge.units());
            [user.keep_free(charge.kept_free(0)), all]
        };
        let both = AllAtOnce::new((user.clone(), all.clone()), keys);
        let first = ask(&both, 5, 2).await;
        assert!(first.is_admitted(), "{first:?}");
        let kept: Vec<_> = first.policies().map(|one| one.kept_free()).collect();
        assert_eq!(kept, [2, 95]);
        let refused = ask(&both, 5, 2).await;
        assert!(!refused.is_admitted());
        let left = user.peek(format!("acme-{run}")).await.unwrap();
        assert_eq!(left.remaining(), Some(5), "run {run}");
    }
}

/// Without units that stay free, a charge is as one that says nothing, so it is sent as that one.
#[test]
fn a_charge_that_keeps_nothing_is_as_one_that_says_nothing() {
    assert_eq!(tower_sluice::KeepFree::from(0), tower_sluice::KeepFree::default());
    assert_eq!(tower_sluice::KeepFree::from((0, 0)), tower_sluice::KeepFree::default());
}
