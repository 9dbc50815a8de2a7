//! A wrapper goes around `AllAtOnce`, since one call to Redis decides for all of its members.

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::Breaker;
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{LimiterExt, Pool, Quota, Redis};

fn main() {
    let pool = Pool::connect("redis://127.0.0.1:6379").unwrap();
    let user = Redis::new("user", TokenBucket::new(Quota::per_second(10)), pool.clone());
    let all = Redis::new("all", TokenBucket::new(Quota::per_second(100)), pool);
    let _ = AllAtOnce::of_parts((user.breaker(Breaker::new()), all)); //~ wrappers such as `describe` and `breaker` go around `AllAtOnce`, not around its members
}
