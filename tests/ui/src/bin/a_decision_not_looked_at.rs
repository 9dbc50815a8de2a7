//! A decision that nobody looks at: a refused charge would run on.

#![deny(unused_must_use)]

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota};

async fn work() {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(10)));
    limiter.check(&Charge::new("alice")).await.unwrap(); //~ a decision may be a refusal: look at `is_admitted()` or `outcome()`
    limiter.estimate("alice").await.unwrap(); //~ unused `Decision` that must be used

    // Their refusals are errors, or they have none.
    limiter.acquire("alice").await.unwrap();
    limiter.try_acquire("alice").await.unwrap();
    limiter.penalize("alice").await.unwrap();
    limiter.block("alice", std::time::Duration::from_secs(1)).await.unwrap();
    limiter.unblock("alice").await.unwrap();
    limiter.reset("alice").await.unwrap();
}

fn main() {
    drop(work());
}
