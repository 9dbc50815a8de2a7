use std::future::ready;

use super::*;
use crate::core::{Decision, Error, Outcome};
use crate::limiter::{Limiter, LimiterExt};

#[tokio::test]
async fn a_key_that_is_too_long_is_not_digested_for_a_lease() {
    let inner = |_: &Charge| ready(Ok::<_, Error>(Decision::new(Outcome::Allow)));
    let limiter = inner.lease(10);
    let long = |length| Charge::new("x".repeat(length));
    let _ = limiter.check(&long(64 * 1024 + 1)).await.expect("asked alone");
    assert!(limiter.leases.is_empty());
    let _ = limiter.check(&long(64 * 1024)).await.expect("asked alone, and watched");
    assert!(!limiter.leases.is_empty());
}

#[test]
fn the_busier_of_two_stretches_counts_until_both_are_over() {
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let mut demand = Demand::new(start);
    demand.add(start, second, 3);
    demand.add(start + second / 2, second, 2);
    assert_eq!(demand.recent(start + second / 2, second), 5);
    demand.add(start + second, second, 1);
    assert_eq!(demand.recent(start + second, second), 5);
    assert_eq!(demand.recent(start + 2 * second, second), 1);
    assert_eq!(demand.ends_at(second), start + 4 * second);
    assert_eq!(demand.recent(start + 4 * second, second), 0);
}
