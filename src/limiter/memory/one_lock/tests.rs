use std::time::Duration;

use super::*;
use crate::algorithm::{Concurrency, SlidingLog, TokenBucket};
use crate::core::{Outcome, Quota};
use crate::limiter::{Limiter, LimiterExt};

const HOUR: Duration = Duration::from_secs(3_600);

/// A caller may state any wait, and so begin a queue of its own before all others.
#[tokio::test(start_paused = true)]
async fn who_states_another_wait_or_cost_joins_the_same_queue() {
    let turns = Memory::new("turns", AnyAlgorithm::from(Concurrency::new(2)));
    let bucket = AnyAlgorithm::from(TokenBucket::new(Quota::per_hour(1_000)));
    let bucket = Memory::new("bucket", bucket).clock_of(&turns);
    let both = Together::of_memory(&[&turns, &bucket]).expect("two limiters").0;
    let charge = |cost, wait| Charge::new("key").cost(cost).max_wait(wait);
    let held = both.check(&[&charge(2, HOUR / 3), &charge(1, HOUR)]).unwrap().await.unwrap();
    assert!(held.is_admitted());
    let mut waiting = Vec::new();
    for (cost, wait) in [(2, HOUR), (2, HOUR / 2), (1, HOUR)] {
        let charges = [&charge(cost, wait), &charge(1, wait)];
        let mut decision = both.check(&charges).unwrap().await.unwrap();
        assert!(matches!(decision.outcome(), Outcome::Retry(_)), "{decision:?}");
        let waiters = decision.take_waiters().expect("a queue");
        waiting.push(crate::core::waiters::Waiter::new(waiters).0);
    }
    let ask: Vec<_> = waiting.iter().map(|waiter| waiter.asks()).collect();
    assert_eq!(ask, [true, false, false]);
}

/// `tests/limiters/block.rs` tests the same over Redis.
#[tokio::test(start_paused = true)]
async fn a_block_says_nothing_about_the_other_limiters() {
    let minute = Quota::per_minute(10);
    let user = Memory::new("user", AnyAlgorithm::from(SlidingLog::new(minute)));
    let address = Memory::new("address", AnyAlgorithm::from(TokenBucket::new(minute)));
    let address = address.clock_of(&user);
    let both = Together::of_memory(&[&user, &address]).expect("two limiters").0;
    address.block("key", HOUR).await.unwrap();
    let refused = Outcome::Deny { retry_after: Some(HOUR) };
    for cost in [1, 9, 1] {
        let charge = Charge::new("key").cost(cost);
        let alone = user.estimate(charge.clone()).await.unwrap();
        let decision = both.check(&[&charge; 2]).unwrap().await.unwrap();
        assert_eq!((decision.outcome(), decision.limiter()), (refused, Some("address")));
        let told: Vec<_> =
            decision.policies().map(|one| (one.outcome(), one.remaining())).collect();
        assert_eq!(told, [(alone.outcome(), alone.remaining()), (refused, Some(0))]);
        assert!(user.check(&charge).await.unwrap().is_admitted() || cost == 1);
    }
    user.pause("key", HOUR / 2).await.unwrap();
    let decision = both.check(&[&Charge::new("key"); 2]).unwrap().await.unwrap();
    let told: Vec<_> = decision.policies().map(|one| one.retry_after()).collect();
    assert_eq!(told, [Some(HOUR / 2), Some(HOUR)]);
}
