//! The deny cache: it repeats what the inner limiter would answer, and never what it would not.

mod bounds;
mod forgets;
mod histories;
#[cfg(feature = "redis")]
mod over_redis;
mod repeats;

use crate::*;

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
