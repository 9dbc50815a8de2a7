//! Budgets: what a charge holds is settled, by whom, and what becomes of it if nobody does.
//!
//! `layer.rs` has time paused and no Redis.

#[cfg(feature = "redis")]
mod combinations;
mod layer;

use super::*;

/// The units that are free of a key.
async fn left<L: Limiter>(limiter: &L, key: &'static str) -> u64 {
    limiter.peek(key).await.expect("a peek").remaining().expect("reported")
}

/// Eight streams of a language model's answers share 10,000 units. Each is charged an estimate of
/// 1,000 and uses 100. A bucket gives back the latest one only.
#[tokio::test(start_paused = true)]
async fn eight_streams_leave_what_they_did_not_use() {
    let tokens = Quota::per_day(10_000);
    for (algorithm, free) in
        [(AnyAlgorithm::from(Budget::new(tokens)), 9_200), (TokenBucket::new(tokens).into(), 2_900)]
    {
        let (limiter, mut held) = (Memory::new("tokens", algorithm), Vec::new());
        for _ in 0..8 {
            let estimate = Charge::new("alice").cost(1_000);
            held.extend(limiter.check(&estimate).await.unwrap().take_reservation());
        }
        for reservation in held {
            limiter.settle(reservation, 100).expect("its own").await.expect("settled");
        }
        assert_eq!(left(&limiter, "alice").await, free);
    }
}
