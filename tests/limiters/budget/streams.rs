//! Eight streams of a language model's answers share 10,000 units. Each is charged an estimate of
//! 1,000 and uses 100. So 9,200 are left.

use tower_sluice::algorithm::InLua;

use super::left;

use crate::*;

const TOKENS: Quota = Quota::per_day(10_000);

/// The units left after eight estimates were charged, and then settled with 100 each.
async fn after_eight<L: Limiter>(limiter: &L) -> u64 {
    let mut held: Vec<Reservation> = Vec::new();
    for _ in 0..8 {
        let estimate = Charge::new("alice").cost(1_000);
        held.extend(limiter.check(&estimate).await.expect("a decision").take_reservation());
    }
    assert_eq!(held.len(), 8);
    for reservation in held {
        limiter.settle(reservation, 100).expect("its own").await.expect("settled");
    }
    left(limiter, "alice").await
}

fn over<A: InLua>(server: &Server, algorithm: impl IntoAlgorithm<Algorithm = A>) -> Redis<A> {
    Redis::new("tokens", algorithm, server.pool()).decision_timeout(LONG)
}

#[tokio::test]
async fn eight_streams_leave_what_they_did_not_use() {
    let server = Server::start();
    let (budget, bucket) = (Budget::new(TOKENS), TokenBucket::new(TOKENS));
    assert_eq!(after_eight(&Memory::new("tokens", budget)).await, 9_200);
    assert_eq!(after_eight(&over(&server, budget)).await, 9_200);
    // A bucket gives back the latest one only.
    assert_eq!(after_eight(&Memory::new("tokens", bucket)).await, 2_900);
    assert_eq!(after_eight(&over(&server, bucket)).await, 2_900);
}
