//! Decisions that a clock asks for, not the answers before: what callers feel whose number nobody
//! bounds. The crate stands beside the yardstick, at the same rates: half and 80 % of what the
//! yardstick can do.
//!
//! A decision begins when it is due, so that one that had to wait for its turn counts in full.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, yield_now};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, Quota};

use crate::against_redis::{BURST, ask_lean, lean_call, load_lean};
use crate::measure::median_of;
use crate::site::{KEYS, Site};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);

/// Tasks that find out what the yardstick can do.
const TASKS: usize = 256;
const SHARES: [f64; 2] = [0.5, 0.8];

pub(crate) fn run() {
    let site = Site::new();
    let bucket = TokenBucket::new(Quota::per_second(1_000_000).burst(BURST));
    // As the yardstick, it refuses nobody who comes while many wait.
    let limiter = site.limiter(bucket).queue_capacity(1_000_000);
    let (connection, digest) = site.runtime.block_on(async {
        let mut connection = site.server.connection().await;
        let digest = load_lean(&mut connection).await;
        (connection, digest)
    });
    let bare = move |key: Arc<str>| ask_lean(connection.clone(), lean_call(&digest, &key, 1));
    let ours = move |key| {
        let asked = limiter.check(&Charge::new(key));
        async move { drop(asked.await.expect("a decision")) }
    };
    let capacity = || site.drive(TASKS, 60_000, KEYS, bare.clone()).per_second;
    let capacity = median_of((0..ROUNDS).map(|_| capacity()));
    println!("bench case=open_capacity tasks={TASKS} per_second={capacity:.0}");
    for share in SHARES {
        let mut took = [const { Vec::new() }; 2];
        for round in 0..ROUNDS as u64 {
            took[0].push(asked_by_a_clock(&site, share * capacity, round, ours.clone()));
            took[1].push(asked_by_a_clock(&site, share * capacity, round, bare.clone()));
        }
        for (case, rounds) in ["redis", "evalsha"].into_iter().zip(took) {
            let middle = |part: f64| {
                median_of(
                    rounds
                        .iter()
                        .map(|took| took[(took.len() as f64 * part) as usize].as_secs_f64() * 1e6),
                )
            };
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(middle);
            println!(
                "bench case=open_{case} share={share} p50_us={p50:.0} p99_us={p99:.0} p999_us={p999:.0}"
            );
        }
    }
}

/// Asks at random instants, so many a second. Returns how long each decision took, in their order.
fn asked_by_a_clock<F: Future<Output = ()> + Send + 'static>(
    site: &Site,
    per_second: f64,
    seed: u64,
    ask: impl Fn(Arc<str>) -> F,
) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut took = site.runtime.block_on(async {
        let (mut asking, mut took) = (JoinSet::new(), Vec::new());
        let (begun, mut at) = (Instant::now(), Duration::ZERO);
        while at < ROUND {
            at += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / per_second);
            // A timer has whole milliseconds, so the thread asks the clock.
            while begun.elapsed() < at {
                yield_now().await;
                took.extend(std::iter::from_fn(|| asking.try_join_next()).flatten());
            }
            let asked = ask(Arc::clone(&site.keys[random.usize(..KEYS)]));
            let due = begun + at;
            asking.spawn(async move {
                asked.await;
                due.elapsed()
            });
        }
        took.extend(asking.join_all().await);
        took
    });
    took.sort_unstable();
    took
}
