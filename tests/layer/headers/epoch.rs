//! The style with an epoch: whoever asks later reads the same second.

use tokio::time::advance;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::Origin;
use tower_sluice::{Charge, Limiter, LimiterExt, Memory};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_repeated_names_the_same_second() {
    let hourly = Memory::new("api", TokenBucket::new(Quota::per_hour(1)));
    let limiter = hourly.deny_cache().max_age(3_600 * SECOND);
    let refused = async |origin| {
        let decision = limiter.check(&Charge::new("key")).await.unwrap();
        assert_eq!((decision.is_admitted(), decision.origin()), (false, origin));
        rejected(HeaderStyle::LegacyEpoch, decision)
    };
    assert!(limiter.check(&Charge::new("key")).await.unwrap().is_admitted());
    let first = refused(Origin::Local).await;
    for _ in 0..2 {
        advance(5 * SECOND).await;
        let later = refused(Origin::Cache).await;
        assert_eq!(later["x-ratelimit-reset"], first["x-ratelimit-reset"]);
        assert_ne!(later["retry-after"], first["retry-after"]);
    }
}
