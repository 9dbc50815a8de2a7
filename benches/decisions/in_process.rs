//! What a decision costs in this process alone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tower::{Layer, Service};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{
    Charge, Decision, Error, Limiter, Memory, Outcome, Quota, Raise, RateLimitLayer,
};

const ROUNDS: usize = 9;
const CALLS: usize = 200_000;

/// Prints a line for each case: a bare service, the layer around it, and the embedded limiter.
pub(crate) fn run() {
    time("service", bare());
    time("layer", layer());
    time("memory", memory());
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
    println!("bench case={case} ns={:.1} allocs={allocs}", rounds[ROUNDS / 2]);
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
    let keys: Vec<std::sync::Arc<str>> =
        (0..100_000).map(|key| format!("key {key}").into()).collect();
    let mut next = 0;
    move || {
        next = (next + 7_919) % keys.len();
        let charge = Charge::new(std::sync::Arc::clone(&keys[next]));
        drop(black_box(now(limiter.check(&charge))));
    }
}
