//! Units that are given back without a reservation: up to the whole limit, whoever took them.

use tower_sluice::limiter::AllInTurn;

use super::*;

async fn take(limiter: &impl Limiter, cost: u64) -> Decision {
    limiter.check(&Charge::new("acme").cost(cost)).await.expect("a decision")
}

/// Takes units for good: a budget holds them until they are settled.
async fn spend(limiter: &impl Limiter, cost: u64) {
    let mut taken = take(limiter, cost).await;
    assert!(taken.is_admitted(), "{taken:?}");
    let settled = limiter.settle(taken.take_reservation().expect("units"), cost);
    settled.expect("its own").await.expect("an answer");
}

/// What every algorithm does with ten units.
async fn gives_up_to_the_whole(limiter: &impl Limiter, name: &str) {
    let left = || async { limiter.peek("acme").await.expect("a decision").remaining() };
    let give = |units| async move {
        let given = limiter.grant("acme", units).await.expect("an answer");
        assert_eq!(given.remaining(), left().await, "a peek shows the same: {name}");
        given.remaining().expect("reported")
    };
    assert_eq!(give(5).await, 10, "nothing was taken: {name}");
    for _ in 0..4 {
        spend(limiter, 2).await;
    }
    assert_eq!(give(0).await, 2, "{name}");
    assert_eq!(give(3).await, 5, "{name}");
    assert_eq!(give(1).await, 6, "{name}");
    assert!(take(limiter, 6).await.is_admitted(), "{name}");
    assert!(!take(limiter, 1).await.is_admitted(), "{name}");
    limiter.reset("acme").await.expect("an answer");
    spend(limiter, 10).await;
    assert_eq!(give(1 << 40).await, 10, "never more than the whole: {name}");
    assert!(!take(limiter, 11).await.is_admitted(), "{name}");
    assert!(take(limiter, 10).await.is_admitted(), "{name}");
}

/// Units that count now are not those of the window in which a waiter goes.
#[tokio::test(start_paused = true)]
async fn a_log_in_which_somebody_waits_gives_back_what_was_granted() {
    let log = Memory::new("log", SlidingLog::new(Quota::per_minute(5)));
    for _ in 0..2 {
        assert!(log.check(&Charge::new("acme").cost(2)).await.unwrap().is_admitted());
    }
    let waits = log.check(&Charge::new("acme").cost(2).max_wait(60 * SECOND)).await.unwrap();
    assert!(matches!(waits.outcome(), Outcome::Wait(_)), "{waits:?}");
    assert_eq!(log.grant("acme", 3).await.unwrap().remaining(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_gives_up_to_the_whole() {
    // Nobody gives back what is held, and a pace gets time back.
    let [bucket, budget, _, one, two, three, four, five, _, pace, _] =
        each(Quota::new(10, 1_000 * HOUR));
    for algorithm in [bucket, budget, one, two, three, four, five, pace] {
        let name = format!("{algorithm:?}");
        gives_up_to_the_whole(&Memory::new("api", algorithm), &name).await;
    }
}

/// A log of so many members that a script must not walk it.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_long_log_gives_back_its_newest_units() {
    let (_server, pool) = Server::pooled();
    let log = SlidingLog::new(Quota::per_day(10_000));
    let limiter = Redis::new("log", log, pool).decision_timeout(LONG);
    let mut taken = JoinSet::new();
    for index in 0..2_000 {
        let limiter = limiter.clone();
        taken.spawn(async move { take(&limiter, 1 + index % 3).await.is_admitted() });
    }
    assert!(taken.join_all().await.into_iter().all(|admitted| admitted));
    let before = limiter.peek("acme").await.unwrap().remaining().expect("reported");
    let given = limiter.grant("acme", 1_000).await.unwrap();
    assert_eq!(given.remaining(), Some(before + 1_000));
    assert!(take(&limiter, before + 1_000).await.is_admitted());
    assert!(!take(&limiter, 1).await.is_admitted());
}

/// What was taken of a pace is time, and units give it back: first what is owed, then the store.
#[tokio::test(start_paused = true)]
async fn a_pace_gets_the_time_of_the_units_back() {
    let pace = Quota::per_second(1);
    let warming = SmoothWarmingUp::new(pace, 10 * SECOND).cold_factor(1.0);
    let each: [AnyAlgorithm; 2] =
        [SmoothBursty::new(pace).max_burst(10 * SECOND).into(), warming.into()];
    for algorithm in each {
        let limiter = Memory::new("api", algorithm);
        let peeked = limiter.peek("acme").await.unwrap();
        let all = peeked.remaining().expect("reported");
        assert!(take(&limiter, all + 20).await.is_admitted());
        let owes = limiter.peek("acme").await.unwrap();
        let (wait, full) = (owes.retry_after().unwrap(), owes.reset_after().unwrap());
        let given = limiter.grant("acme", 5).await.unwrap();
        assert_eq!(given.retry_after(), Some(wait - 5 * SECOND), "{algorithm:?}");
        assert_eq!(given.reset_after(), Some(full - 5 * SECOND), "{algorithm:?}");
        let given = limiter.grant("acme", 1_000).await.unwrap();
        assert_eq!((given.remaining(), given.retry_after()), (Some(all), None), "{algorithm:?}");
        assert_eq!(given.reset_after(), Some(Duration::ZERO), "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn held_units_stay_held() {
    let tokens = Memory::new("tokens", Budget::new(Quota::per_hour(10)));
    let held = take(&tokens, 6).await;
    spend(&tokens, 3).await;
    assert_eq!(tokens.grant("acme", 100).await.unwrap().remaining(), Some(4));
    assert!(!take(&tokens, 5).await.is_admitted());
    let settled = tokens.settle(held.into_reservation().expect("six"), 2).expect("its own");
    assert_eq!(settled.await.unwrap().given_back, 4);
    assert_eq!(tokens.peek("acme").await.unwrap().remaining(), Some(8));
}

#[tokio::test(start_paused = true)]
async fn a_debt_becomes_smaller() {
    let api = Memory::new("api", TokenBucket::new(Quota::per_hour(10)));
    api.penalize(Charge::new("acme").cost(25)).await.unwrap();
    assert_eq!(api.grant("acme", 10).await.unwrap().retry_after(), Some(HOUR / 2));
    assert_eq!(api.grant("acme", 10).await.unwrap().remaining(), Some(5));
}

/// A block refuses still, and what was given is there when it ends.
#[tokio::test(start_paused = true)]
async fn a_block_stays() {
    let api = Memory::new("api", TokenBucket::new(Quota::per_hour(10)));
    spend(&api, 10).await;
    api.block("acme", HOUR).await.unwrap();
    assert_eq!(api.grant("acme", 10).await.unwrap().remaining(), Some(0));
    assert_eq!(api.unblock("acme").await.unwrap().remaining(), Some(10));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_at_the_same_time_is_not_given() {
    let running = Memory::new("running", Concurrency::new(2));
    let held = take(&running, 2).await;
    let error = running.grant("acme", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("held"), "{error}");
    assert_eq!(running.peek("acme").await.unwrap().remaining(), Some(0));
    drop(held);

    // Beside others, those get units.
    let both = (TokenBucket::new(Quota::per_hour(10)), Concurrency::new(4));
    let both = Memory::new("both", both);
    let _held = take(&both, 3).await;
    let given = both.grant("acme", 2).await.unwrap();
    let left: Vec<_> = given.policies().map(|one| one.remaining()).collect();
    assert_eq!(left, [Some(9), Some(1)]);

    let bucket = Memory::new("bucket", TokenBucket::new(Quota::per_hour(10)));
    let members = [running.boxed(), bucket.clone().boxed()];
    let in_turn = AllInTurn::new(members, |charge: &Charge| [charge.clone(), charge.clone()]);
    spend(&bucket, 5).await;
    in_turn.grant("acme", 2).await.unwrap();
    assert_eq!(bucket.peek("acme").await.unwrap().remaining(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn each_member_gets_the_units() {
    let quotas = (Quota::per_minute(10), Quota::per_day(100));
    let pair = (TokenBucket::new(quotas.0), FixedWindow::new(quotas.1).anchored());
    let api = Memory::new("api", pair);
    spend(&api, 8).await;
    let given = api.grant("acme", 5).await.unwrap();
    let left: Vec<_> = given.policies().map(|one| one.remaining()).collect();
    assert_eq!(left, [Some(7), Some(97)]);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn members_of_one_call_get_the_units() {
    use tower_sluice::redis::AllAtOnce;
    let (_server, pool) = Server::pooled();
    let slow = |units| Quota::new(units, 1_000 * HOUR);
    let user = Redis::new("user", TokenBucket::new(slow(10)), pool.clone());
    let all = Redis::new("all", SlidingWindow::new(slow(100)), pool.clone());
    for all_cost in [1, 3] {
        let keys = move |charge: &Charge| [charge.clone(), Charge::new("all").cost(all_cost)];
        let both = AllAtOnce::new((user.clone(), all.clone()), keys);
        let key = format!("acme-{all_cost}");
        let taken = both.check(&Charge::new(key.as_str()).cost(6)).await.unwrap();
        assert!(taken.is_admitted());
        let before = all.peek("all").await.unwrap().remaining().expect("reported");
        both.grant(key.as_str(), 4).await.unwrap();
        assert_eq!(user.peek(key.as_str()).await.unwrap().remaining(), Some(8));
        // A member with a cost of its own gets as many as it takes of a charge.
        let after = all.peek("all").await.unwrap().remaining().expect("reported");
        assert_eq!(after - before, all_cost);
    }
}

/// Refusals that this process repeats, and units that it has leased.
#[tokio::test(start_paused = true)]
async fn wrappers_pass_a_grant_on() {
    let store = Memory::new("api", TokenBucket::new(Quota::per_hour(10)));
    let limiter = store.clone().deny_cache().timeout(SECOND).or_else(FailOpen);
    spend(&limiter, 10).await;
    assert!(!take(&limiter, 1).await.is_admitted());
    assert_eq!(take(&limiter, 1).await.origin(), Origin::Cache);
    limiter.grant("acme", 2).await.unwrap();
    assert!(take(&limiter, 2).await.is_admitted());

    let store = Memory::new("api", TokenBucket::new(Quota::per_hour(1_000)));
    let leased = store.clone().lease(100).valid_for(10 * SECOND);
    for _ in 0..500 {
        assert!(take(&leased, 1).await.is_admitted());
    }
    let before = store.peek("acme").await.unwrap().remaining().expect("reported");
    leased.grant("acme", 100).await.unwrap();
    assert_eq!(store.peek("acme").await.unwrap().remaining(), Some(before + 100));
}

/// Who waits for a slot keeps it, and the next caller may come sooner.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_slot() {
    let api = Memory::new("api", TokenBucket::new(Quota::per_second(1)));
    spend(&api, 1).await;
    let waits = api.check(&Charge::new("acme").max_wait(10 * SECOND)).await.unwrap();
    assert_eq!(waits.outcome(), Outcome::Wait(SECOND));
    let given = api.grant("acme", 1).await.unwrap();
    assert_eq!(given.retry_after(), None);
    let next = api.check(&Charge::new("acme").max_wait(10 * SECOND)).await.unwrap();
    assert_eq!(next.outcome(), Outcome::Wait(SECOND));
    assert!(waits.into_reservation().is_some());
}
