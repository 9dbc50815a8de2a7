//! An algorithm without a name and a store.

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::Global;
use tower_sluice::{Quota, RateLimitLayer};

fn main() {
    let bucket = TokenBucket::new(Quota::per_second(5));
    let _ = RateLimitLayer::new(bucket, Global); //~ an algorithm needs a name and a store: write `Memory::new("api", algorithm)`
}
