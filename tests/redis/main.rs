//! A limiter over Redis: its calls, its keys and what it answers.

#![cfg(feature = "redis")]

#[cfg(feature = "redisson")]
mod all_at_once;
mod batcher;
mod batches;
#[cfg(feature = "calendar")]
mod calendars;
mod changed_quotas;
mod decisions;
mod different_costs;
mod expiry;
mod resets;
#[cfg(feature = "redisson")]
mod several_keys;
mod stored_keys;
mod tuples;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::algorithm::{
    AnyAlgorithm, Budget, Concurrency, FixedWindow, InLua, IntoAlgorithm, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use tower_sluice::limiter::{AllInTurn, Boxed, Origin};
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{
    Charge, Decision, ErrorKind, Limiter, LimiterExt, Memory, Outcome, Pool, Quota, RateLimitLayer,
    Redis,
};

use support::Server;
use support::dice::{Dice, times};
use support::faults::{eventually, run};
use support::proxy::{Fault, Proxy};
use support::stats::{calls, script_calls};

#[cfg(feature = "redisson")]
use tower_sluice_redisson::{Rate, Redisson};

/// Long enough for the slowest machine: no test here is about speed.
const PATIENT: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

/// A limiter whose clock is set by hand.
fn by_clock<A: InLua>(
    clock: &Arc<AtomicU64>,
    pool: &Pool,
    name: &str,
    algorithm: impl IntoAlgorithm<Algorithm = A>,
) -> Redis<A> {
    Redis::new(name, algorithm, pool.clone())
        .clock(support::clock_at(clock))
        .decision_timeout(PATIENT)
}
