//! The deny cache: it repeats what the inner limiter would answer, and never what it would not.

mod bounds;
mod forgets;
mod histories;
#[cfg(feature = "redis")]
mod over_redis;
mod repeats;

use std::time::Duration;

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::Origin;
use tower_sluice::{Charge, Limiter, Memory, Quota};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn one() -> Charge {
    Charge::new("key")
}

/// A bucket of one unit a second.
fn slow() -> Memory<TokenBucket> {
    Memory::new("slow", TokenBucket::new(Quota::per_second(1)))
}

/// Returns true if the cache refuses a charge of one unit, and false if the inner limiter does.
async fn refused_from_cache(limiter: &impl Limiter, key: &'static str) -> bool {
    let refused = limiter.check(&Charge::from_static(key)).await.expect("a decision");
    assert!(!refused.is_admitted(), "{refused:?}");
    refused.origin() == Origin::Cache
}
