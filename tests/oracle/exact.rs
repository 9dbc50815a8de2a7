//! Right at the edge, with a clock of the test's own: waits are exact to the microsecond (S3), and a
//! refusal or a peek leaves nothing behind (S5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower_sluice::{Charge, Outcome, Pool, Quota};

use crate::algorithms::{Algorithm, Judged, Site, chosen, pool};
use crate::support::{Server, expires};
use crate::{crew, stock, turn};

const START: u64 = 1_767_225_600_000_000;

/// Keys that are walked at once.
const WALKS: usize = 60;

/// A limit, a period in µs, and the burst of those that know bursts.
const QUOTAS: [(u64, u64, u64); 6] = [
    (5, 1_000_000, 5),
    (3, 1_000_000, 10),
    (7, 10, 7),
    (3, 10, 1),
    (1, 86_400_000_000, 2),
    (1_000_003, 1_000_000, 500),
];

/// One key and one clock.
struct Walk {
    limiter: Arc<dyn Judged>,
    quota: Quota,
    clock: Arc<AtomicU64>,
    key: String,
    dice: fastrand::Rng,
}

impl Walk {
    fn new(algorithm: &Algorithm, pool: Pool, number: usize) -> Self {
        let (limit, period, burst) = QUOTAS[number % QUOTAS.len()];
        let quota = (algorithm.quota)(Quota::new(limit, Duration::from_micros(period)), burst);
        let clock = Arc::new(AtomicU64::new(START));
        let limiter = (algorithm.limiter)(quota, Site { pool, clock: Some(clock.clone()) });
        let dice = fastrand::Rng::with_seed(number as u64);
        Self { limiter, quota, clock, key: number.to_string(), dice }
    }

    async fn ask(&self, cost: u64, patience: Duration) -> Outcome {
        let patience = if self.limiter.books() { patience } else { Duration::ZERO };
        let charge = Charge::new(self.key.clone()).cost(cost).max_wait(patience);
        match self.limiter.check(&charge).await.expect("a decision").outcome() {
            Outcome::Retry(wait) => Outcome::Deny { retry_after: Some(wait) },
            outcome => outcome,
        }
    }

    /// Steps forward and asks until it is refused; returns the cost and the wait.
    async fn until_refused(&mut self) -> (u64, Duration) {
        let period = self.quota.period().as_micros() as u64;
        let unit = period / self.quota.limit();
        loop {
            let step = [0, 0, 0, 1, unit, unit + 1, period - 1][self.dice.usize(..7)];
            self.clock.fetch_add(step, Relaxed);
            let cost = self.dice.u64(1..=self.quota.get_burst());
            let patience = [0, 0, unit, 2 * period][self.dice.usize(..4)];
            let outcome = self.ask(cost, Duration::from_micros(patience)).await;
            if let Outcome::Deny { retry_after: Some(wait) } = outcome {
                return (cost, wait);
            }
        }
    }

    /// Comes to a refusal, and asks on both sides of every edge that it told.
    async fn check_edges(&mut self) {
        let (cost, wait) = self.until_refused().await;
        let place = format!("{:?} at {}, cost {cost}", self.quota, self.clock.load(Relaxed));
        let micro = Duration::from_micros(1);
        let denied = |wait| Outcome::Deny { retry_after: Some(wait) };
        let horizon = Duration::from_secs(60);

        assert_eq!(self.ask(cost, (wait - micro).min(horizon)).await, denied(wait), "{place}");
        if wait > horizon {
            assert_eq!(self.ask(cost, wait).await, denied(wait), "beyond the horizon, {place}");
        }
        if wait <= horizon && self.limiter.books() && self.dice.bool() {
            assert_eq!(self.ask(cost, wait).await, Outcome::Wait(wait), "{place}");
            return;
        }
        self.clock.fetch_add(wait.as_micros() as u64 - 1, Relaxed);
        assert_eq!(self.ask(cost, Duration::ZERO).await, denied(micro), "{place}");
        self.clock.fetch_add(1, Relaxed);
        assert_eq!(self.ask(cost, Duration::ZERO).await, Outcome::Allow, "{place}");
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Comes to so many refusals of an algorithm, and asks on both sides of each edge.
///
/// # Panics
///
/// If a wait is not exact.
pub(crate) fn walk_edges(algorithm: &Algorithm, url: &str, states: usize) {
    runtime().block_on(async {
        let pool = pool(url);
        let mut walks = JoinSet::new();
        for number in 0..WALKS {
            let mut walk = Walk::new(algorithm, pool.clone(), number);
            walks.spawn(async move {
                for _ in 0..states.div_ceil(WALKS) {
                    walk.check_edges().await;
                }
            });
        }
        walks.join_all().await;
    });
}

#[test]
fn refused_one_microsecond_before_the_wait_and_admitted_at_it() {
    let _turn = turn();
    // States of each algorithm in which it is asked at the edges.
    let states: usize = crew::number("ORACLE_STATES", 2_400);
    for algorithm in chosen().filter(|algorithm| algorithm.at_once) {
        let server = Server::start();
        walk_edges(algorithm, &server.url(), states);
        println!("oracle algorithm={} exact waits={states}", algorithm.name);
    }
}

/// The value and the deadline of every key, and the writes so far.
async fn trace_of(connection: &mut MultiplexedConnection) -> (Vec<(String, String, i64)>, usize) {
    let mut names: Vec<String> = cmd("KEYS").arg("*").query_async(connection).await.expect("names");
    names.sort();
    let mut values = Vec::new();
    for name in names {
        let value = stock::value(connection, &name).await.expect("a value");
        let end = expires(connection, &name).await;
        values.push((name, value, end));
    }
    (values, stock::counted(connection).await.1)
}

#[test]
fn refusal_and_peek_leave_value_and_deadline_as_they_were() {
    let _turn = turn();
    let server = Server::start();
    let pool = pool(&server.url());
    runtime().block_on(async {
        let mut connection = server.connection().await;
        let slow = Quota::new(3, Duration::from_secs(3_600));
        for algorithm in chosen() {
            for clock in [None, Some(Arc::new(AtomicU64::new(START)))] {
                let site = Site { pool: pool.clone(), clock };
                let limiter = (algorithm.limiter)((algorithm.quota)(slow, 3), site);
                let ask = async |key: &'static str, cost| {
                    let charge = Charge::new(key).cost(cost);
                    limiter.check(&charge).await.expect("a decision").outcome()
                };
                for &taken in algorithm.openings {
                    let key = ["untouched", "begun", "", "full", "indebted"][taken as usize];
                    if taken > 0 {
                        assert_eq!(ask(key, taken).await, Outcome::Allow, "{}", algorithm.name);
                    }
                    let before = trace_of(&mut connection).await;
                    for cost in [0, 4, 3, 0, 3] {
                        if taken > 0 || cost != 3 {
                            ask(key, cost).await;
                        }
                    }
                    assert_eq!(trace_of(&mut connection).await, before, "{}", algorithm.name);
                }
                let _: () = cmd("FLUSHALL").query_async(&mut connection).await.expect("emptied");
            }
        }
    });
}
