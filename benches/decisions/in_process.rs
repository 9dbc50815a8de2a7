//! What a decision costs in this process alone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tower::{Layer, Service};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{
    Charge, Decision, Error, Limiter, LimiterExt, Memory, Origin, Outcome, Quota, Raise,
    RateLimitLayer,
};

const ROUNDS: usize = 9;
const CALLS: usize = 200_000;
const KEYS: usize = 100_000;

/// Prints a line for each case: a bare service, the layer around it, the embedded limiter, and
/// refusals that a cache repeats.
pub(crate) fn run() {
    time("service", bare());
    time("layer", layer());
    time("memory", memory());
    time("deny_cache", deny_cache(KEYS));
    time("deny_cache_hot", deny_cache(1));
}

/// Times `call` alone in this process: the median of the rounds, and what it allocates.
fn time(case: &str, mut call: impl FnMut()) {
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let begun = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        *round = begun.elapsed().as_nanos() as f64 / CALLS as f64;
    }
    rounds.sort_by(f64::total_cmp);
    let allocated = allocation_counter::measure(|| (0..1_000).for_each(|_| call()));
    let allocs = allocated.count_total as f64 / 1_000.0;
    let ns = rounds[ROUNDS / 2];
    println!("bench case={case} ns={ns:.1} per_second={:.0} allocs={allocs}", 1e9 / ns);
}

/// The answer of a future that never waits.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn inner() -> impl Service<u64, Response = u64, Error = Infallible, Future: Future> + Clone {
    tower::service_fn(|request: u64| ready(Ok::<_, Infallible>(request)))
}

fn bare() -> impl FnMut() {
    let mut service = inner();
    move || {
        let _ = black_box(now(service.call(black_box(7))));
    }
}

/// The layer alone, around a closure that is ready at once.
fn layer() -> impl FnMut() {
    fn allow(_: &Charge) -> Ready<Result<Decision, Error>> {
        ready(Ok(Decision::new(Outcome::Allow)))
    }
    let mut service = RateLimitLayer::new(allow, |_: &u64| "key").respond(Raise).layer(inner());
    move || drop(black_box(now(service.call(black_box(7)))))
}

/// The same arithmetic in the process, over 100,000 keys.
fn memory() -> impl FnMut() {
    let limiter =
        Memory::new("memory", TokenBucket::new(Quota::per_second(1_000_000_000))).max_keys(200_000);
    let mut next = charges(KEYS);
    move || drop(black_box(now(limiter.check(&next()))))
}

/// Refusals that the cache repeats. The inner limiter has refused each key once.
fn deny_cache(keys: usize) -> impl FnMut() {
    const LONG: Duration = Duration::from_secs(86_400);
    let daily = Memory::new("daily", TokenBucket::new(Quota::per_day(1))).max_keys(200_000);
    let limiter = daily.deny_cache().max_age(LONG).max_keys(200_000);
    let mut next = charges(keys);
    for _ in 0..2 * keys {
        drop(now(limiter.check(&next())));
    }
    move || {
        let refused = black_box(now(limiter.check(&next())));
        assert!(refused.is_ok_and(|refused| refused.origin() == Origin::Cache));
    }
}

/// Charges of so many keys, in an order that no cache of the processor foresees.
fn charges(keys: usize) -> impl FnMut() -> Charge {
    let keys: Vec<Arc<str>> = (0..keys).map(|key| format!("key {key}").into()).collect();
    let mut next = 0;
    move || {
        next = (next + 7_919) % keys.len();
        Charge::new(Arc::clone(&keys[next]))
    }
}
