//! Walks from refusal to refusal with a clock of its own, and calls right before and right after
//! each edge: waits are exact to the microsecond (S3).

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower_sluice::{Charge, Error, Outcome, Quota};

use super::algorithms::{Algorithm, Judged, Site, pool};
use super::{Played, was_lost};

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
    fn new(algorithm: &Algorithm, site: Site, number: usize) -> Self {
        let (limit, period, burst) = QUOTAS[number % QUOTAS.len()];
        let quota = (algorithm.quota)(Quota::new(limit, Duration::from_micros(period)), burst);
        let clock = Arc::new(AtomicU64::new(START));
        let limiter = (algorithm.limiter)(quota, Site { clock: Some(clock.clone()), ..site });
        let dice = fastrand::Rng::with_seed(number as u64);
        Self { limiter, quota, clock, key: number.to_string(), dice }
    }

    async fn ask(&self, cost: u64, patience: Duration) -> Result<Outcome, Error> {
        let patience = if self.limiter.reserves() { patience } else { Duration::ZERO };
        let charge = Charge::new(self.key.clone()).cost(cost).max_wait(patience);
        Ok(match self.limiter.check(&charge).await?.outcome() {
            Outcome::Retry(wait) => Outcome::Deny { retry_after: Some(wait) },
            outcome => outcome,
        })
    }

    /// Steps forward and calls until it is refused. Returns the cost and the wait.
    async fn until_refused(&mut self) -> Result<(u64, Duration), Error> {
        let period = self.quota.period().as_micros() as u64;
        let unit = period / self.quota.limit();
        loop {
            let step = [0, 0, 0, 1, unit, unit + 1, period - 1][self.dice.usize(..7)];
            self.clock.fetch_add(step, Relaxed);
            let cost = self.dice.u64(1..=self.quota.burst_size());
            let patience = [0, 0, unit, 2 * period][self.dice.usize(..4)];
            let outcome = self.ask(cost, Duration::from_micros(patience)).await?;
            if let Outcome::Deny { retry_after: Some(wait) } = outcome {
                return Ok((cost, wait));
            }
        }
    }

    /// Comes to a refusal, and calls on both sides of the instant when its wait ends.
    async fn check_edges(&mut self) -> Result<(), Error> {
        let (cost, wait) = self.until_refused().await?;
        let place = format!("{:?} at {}, cost {cost}", self.quota, self.clock.load(Relaxed));
        let micro = Duration::from_micros(1);
        let denied = |wait| Outcome::Deny { retry_after: Some(wait) };
        let horizon = Duration::from_secs(60);

        assert_eq!(self.ask(cost, (wait - micro).min(horizon)).await?, denied(wait), "{place}");
        if wait > horizon {
            assert_eq!(self.ask(cost, wait).await?, denied(wait), "beyond the horizon, {place}");
        }
        if wait <= horizon && self.limiter.reserves() && self.dice.bool() {
            assert_eq!(self.ask(cost, wait).await?, Outcome::Wait(wait), "{place}");
            return Ok(());
        }
        self.clock.fetch_add(wait.as_micros() as u64 - 1, Relaxed);
        assert_eq!(self.ask(cost, Duration::ZERO).await?, denied(micro), "{place}");
        self.clock.fetch_add(1, Relaxed);
        assert_eq!(self.ask(cost, Duration::ZERO).await?, Outcome::Allow, "{place}");
        Ok(())
    }
}

/// Comes to as many refusals of an algorithm as `states` says, and checks both sides of each edge.
///
/// # Panics
///
/// If a wait is not exact.
pub fn walk(algorithm: &Algorithm, url: &str, states: usize) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let pool = pool(url);
    runtime.block_on(walk_at(algorithm, || Site::new(pool.clone()), states, None));
}

/// The keys of a walk.
pub fn keys() -> impl Iterator<Item = u32> {
    0..WALKS as u32
}

/// The same at a place of the caller's, and only until `end`. Returns how many refusals it met. A
/// walk goes on after a call without an answer, whether or not that counted.
///
/// # Panics
///
/// If a wait is not exact, or without an end, if a call has no answer.
pub async fn walk_at(
    algorithm: &Algorithm,
    site: impl Fn() -> Site,
    states: usize,
    end: Option<Instant>,
) -> Played {
    let mut walks = JoinSet::new();
    for number in 0..WALKS {
        let mut walk = Walk::new(algorithm, site(), number);
        walks.spawn(async move {
            let mut played = Played::default();
            while played.parts < states.div_ceil(WALKS)
                && end.is_none_or(|end| Instant::now() < end)
            {
                played.parts += 1;
                match walk.check_edges().await {
                    Ok(()) => played.done += 1,
                    Err(error) if end.is_some() && was_lost(&error) => played.cut_short += 1,
                    Err(error) => panic!("no decision: {error:?}"),
                }
            }
            played
        });
    }
    let mut all = Played::default();
    while let Some(walk) = walks.join_next().await {
        all += walk.unwrap_or_else(|error| resume_unwind(error.into_panic()));
    }
    all
}
