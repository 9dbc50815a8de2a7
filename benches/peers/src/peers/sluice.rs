//! This crate.

use std::time::Duration;

use tower::Layer;
use tower_sluice::algorithm::{FixedWindow, InLua, TokenBucket};
use tower_sluice::{Charge, Limiter, LimiterExt, Pool, Quota, RateLimitLayer, Redis, by_head};

use super::{Peer, inner, served};
use crate::site::Site;

/// As for the yardstick: one unit per second and key, and an hour's units taken at the start.
const QUOTA: Quota = Quota::per_second(1).burst(65_535);
const FIRST: u64 = 3_600;

/// The limiter alone.
pub(super) fn token_bucket(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, TokenBucket::new(QUOTA));
    touch_all(site, &limiter, FIRST);
    Peer::new(name, move |key| admits(&limiter, Charge::new(key)))
}

/// One unit per hour: each decision sets the expiry of its key anew.
pub(super) fn slow_quota(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, TokenBucket::new(Quota::per_hour(1).burst(8_000)));
    touch_all(site, &limiter, 1);
    Peer::new(name, move |key| admits(&limiter, Charge::new(key)))
}

/// A window of an hour.
pub(super) fn fixed_window(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, FixedWindow::new(Quota::per_hour(1_000_000)));
    touch_all(site, &limiter, 1);
    Peer::new(name, move |key| admits(&limiter, Charge::new(key)))
}

/// The token bucket in its layer, around a service that is ready.
pub(super) fn layer(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, TokenBucket::new(QUOTA));
    touch_all(site, &limiter, FIRST);
    let layer = RateLimitLayer::new(limiter, by_head(|head| head.header("x-api-key")));
    served(site, name, layer.layer(tower::service_fn(inner::<String>)))
}

/// One key with a million units per second.
pub(super) fn hot(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, TokenBucket::new(Quota::per_second(1_000_000)));
    Peer::hot(name, move |_| admits(&limiter, Charge::from_static("hot")))
}

/// One key, leased in at most 100 units.
pub(super) fn lease(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, TokenBucket::new(Quota::per_second(100_000_000))).lease(100);
    Peer::hot(name, move |_| then_yield(admits(&limiter, Charge::from_static("hot"))))
}

/// One key that is refused for an hour. Its cache asks again after a second.
pub(super) fn deny_cache(site: &Site, name: &'static str) -> Peer {
    let limiter = limiter(site, TokenBucket::new(Quota::per_hour(1))).deny_cache();
    let first = admits(&limiter, Charge::from_static("refused"));
    assert!(site.runtime.block_on(first), "admitted");
    Peer::hot(name, move |_| {
        let asked = limiter.check(&Charge::from_static("refused"));
        then_yield(async move { asked.await.is_ok_and(|decision| !decision.is_admitted()) })
    })
}

/// Lets other tasks run once after an answer in the process, as a service does between requests.
async fn then_yield(answer: impl Future<Output = bool>) -> bool {
    let answer = answer.await;
    tokio::task::yield_now().await;
    answer
}

/// A limiter that waits for its answers, however busy the machine is.
fn limiter<A: InLua>(site: &Site, algorithm: A) -> Redis<A> {
    let pool = Pool::connect(&site.url(site.database())).expect("an address");
    Redis::new("bench", algorithm, pool).decision_timeout(Duration::from_secs(60))
}

fn touch_all<L: Limiter<Future: Send + 'static> + 'static>(site: &Site, limiter: &L, cost: u64) {
    site.touch_all(|key| admits(limiter, Charge::new(key).cost(cost)));
}

fn admits<L: Limiter<Future: Send + 'static>>(
    limiter: &L,
    charge: Charge,
) -> impl Future<Output = bool> + Send + use<L> {
    let asked = limiter.check(&charge);
    async move { asked.await.is_ok_and(|decision| decision.is_admitted()) }
}
