use std::time::Duration;

use super::*;
use crate::algorithm::{SlidingLog, TokenBucket};
use crate::core::{Outcome, Quota};
use crate::limiter::{Limiter, LimiterExt};

const HOUR: Duration = Duration::from_secs(3_600);

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
