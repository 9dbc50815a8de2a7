//! A caller that obeys `Retry-After` alone is admitted at the first retry, if nobody else asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fastrand::Rng;
use tower::{Layer, Service};
use tower_sluice::algorithm::{FixedWindow, InLua, IntoAlgorithm, SlidingLog, TokenBucket};
use tower_sluice::limiter::AllInTurn;
use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Pool, RateLimitLayer, Redis};

use super::*;
use support::Server;
use support::algorithms::{Visit, each_algorithm};

const REFUSALS: usize = 100;

/// A clock that the test sets, in microseconds since the Unix epoch.
#[derive(Clone)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_767_225_600_123_457)))
    }

    fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap(), Relaxed);
    }

    fn clock(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        support::clock_at(&self.0)
    }
}

/// Asks at random instants with random costs. After a refusal it waits as the header says, and the
/// next attempt must pass.
async fn obeys<L: Limiter>(name: &str, limiter: L, max_cost: u64, hand: &Hand) {
    let inner = tower::service_fn(async |_: Request<u64>| Ok::<_, Infallible>(Response::new(())));
    let cost = |request: &Request<u64>| Charge::new("key").cost(*request.body());
    let mut service = RateLimitLayer::new(limiter, cost).layer(inner);
    let mut dice = Rng::with_seed(18);
    let mut refusals = 0;
    while refusals < REFUSALS {
        hand.advance(Duration::from_micros(dice.u64(..150_000)));
        let cost = dice.u64(1..=max_cost);
        let refused = service.call(Request::new(cost)).await.unwrap();
        if refused.status() == 200 {
            continue;
        }
        refusals += 1;
        let wait = &refused.headers()["retry-after"];
        let wait = Duration::from_secs(wait.to_str().unwrap().parse().unwrap());
        let field = refused.headers()["ratelimit"].to_str().unwrap();
        assert!(field.ends_with(&format!(";t={}", wait.as_secs())), "{name}: {field}");
        hand.advance(wait);
        let retried = service.call(Request::new(cost)).await.unwrap();
        assert_eq!(retried.status(), 200, "{name}: after {wait:?}, refusal {refusals}");
    }
}

/// Runs each algorithm in all limiters.
struct Everywhere {
    pool: Pool,
    runs: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
}

impl Visit for Everywhere {
    fn visit<A: InLua>(&mut self, algorithm: A) {
        // Its `Retry-After` is a guess, and a request that was answered holds nothing.
        if A::NAME == "concurrency" {
            return;
        }
        let (hand, other) = (Hand::new(), Hand::new());
        let memory = Memory::new("memory", algorithm.clone()).clock(hand.clock());
        // Each has keys of its own.
        let name = format!("{}-{}", A::NAME, self.runs.len());
        let redis = Redis::new(name, algorithm, self.pool.clone())
            .decision_timeout(Duration::from_secs(20))
            .clock(other.clock());
        self.runs.push(Box::pin(async move { obeys(A::NAME, memory, 5, &hand).await }));
        self.runs.push(Box::pin(async move { obeys(A::NAME, redis, 5, &other).await }));
    }
}

#[tokio::test]
async fn who_obeys_retry_after_is_admitted_at_the_first_retry() {
    let (_server, pool) = Server::pooled();
    let mut everywhere = Everywhere { pool, runs: Vec::new() };
    each_algorithm(Quota::per_second(5), &mut everywhere);
    each_algorithm(Quota::new(7, 3 * SECOND), &mut everywhere);
    let bucket = TokenBucket::new(Quota::per_second(3).burst(7));
    everywhere.visit(bucket);
    everywhere.visit((bucket, SlidingLog::new(Quota::per_minute(40))).into_algorithm());
    assert_eq!(everywhere.runs.len(), 2 * (2 * 8 + 2));
    for run in everywhere.runs {
        run.await;
    }
}

#[tokio::test]
async fn in_turn_who_obeys_is_admitted_at_the_first_retry() {
    let hand = Hand::new();
    let bucket = Memory::new("user", TokenBucket::new(Quota::per_second(5))).clock(hand.clock());
    let window = FixedWindow::new(Quota::per_minute(60));
    let window = Memory::new("all", window).clock(hand.clock());
    let keys = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let all = AllInTurn::new([bucket.boxed(), window.boxed()], keys);
    obeys("in turn", all, 5, &hand).await;
}

/// Redisson's clock counts milliseconds.
#[cfg(feature = "redisson")]
#[tokio::test]
async fn of_redisson_who_obeys_is_admitted_at_the_first_retry() {
    use tower_sluice_redisson::{PermitLog, Rate};

    let hand = Hand::new();
    let log = PermitLog::new(Rate::overall(5, SECOND)).unwrap();
    obeys("redisson", log.clock(hand.clock()), 5, &hand).await;
}
