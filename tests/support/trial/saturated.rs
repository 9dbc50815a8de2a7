//! Called without pause, an algorithm admits nearly all that its bound allows. Otherwise one that
//! refuses everything would break no bound. The clock is the test's own, so that the machine's
//! speed decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::{Charge, Outcome};

use super::algorithms::{Algorithm, Site};
use super::workload::Workload;

const START: u64 = 1_767_225_600_000_000;

/// Three periods and a little, in steps of a millisecond: five times what is admitted is asked for.
const STEPS: u64 = 1_700;

/// The units that an algorithm admits to callers with this `patience`, and the most that it may.
pub async fn used(
    algorithm: &Algorithm,
    site: Site,
    key: String,
    patience: Duration,
) -> (i128, i128) {
    let quota = Workload::Saturating.quota(algorithm.quota);
    // A busy machine may take longer for the first connection than a decision waits for one.
    while site.pool.ready().await.is_err() {}
    let clock = Arc::new(AtomicU64::new(START));
    let limiter = (algorithm.limiter)(quota, Site { clock: Some(clock.clone()), ..site });
    let mut dice = fastrand::Rng::with_seed(7);
    let mut taken = Vec::new();
    for step in 0..STEPS {
        let now = START + 1_000 * step;
        clock.store(now, Relaxed);
        let cost = dice.u64(1..=3);
        let charge = Charge::new(key.clone()).cost(cost).max_wait(patience);
        let decision = limiter.check(&charge).await.expect("a decision");
        let wait = match decision.outcome() {
            Outcome::Allow => Duration::ZERO,
            Outcome::Wait(wait) => wait,
            _ => continue,
        };
        let (now, cost) = (i128::from(now), i128::from(cost));
        taken.push((now, now + wait.as_micros().cast_signed(), cost));
    }
    let mut model = (algorithm.model)(quota);
    for (now, at, cost) in &taken {
        model.take(*now, *at, *cost);
    }
    let (stretch, most) = model.most(START.into(), (START + 1_000 * STEPS).into());
    let within = taken.iter().filter(|(_, at, _)| stretch.contains(at));
    (within.map(|(.., cost)| cost).sum(), most)
}
