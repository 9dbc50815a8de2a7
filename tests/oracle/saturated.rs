//! Asked without pause, an algorithm admits nearly all that its bound allows. Otherwise one that refuses everything would
//! break no bound. The clock is the test's own, so that the machine's speed decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower_sluice::{Charge, Outcome, Pool};

use crate::algorithms::{Algorithm, Site, chosen, pool};
use crate::support::Server;
use crate::workload::Workload;

const START: u64 = 1_767_225_600_000_000;

/// Three periods and a little, in steps of a millisecond: five times what is admitted is asked for.
const STEPS: u64 = 1_700;

/// The units that an algorithm admits to those who wait so long, and the most that it may.
pub(crate) async fn used(
    algorithm: &Algorithm,
    pool: Pool,
    key: String,
    patience: Duration,
) -> (i128, i128) {
    let quota = Workload::Saturating.quota(algorithm.quota);
    let clock = Arc::new(AtomicU64::new(START));
    let limiter = (algorithm.limiter)(quota, Site { pool, clock: Some(clock.clone()) });
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

#[test]
fn asked_without_pause_it_admits_99_percent_of_its_bound() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let pool = pool(&server.url());
        let (mut runs, mut keys) = (JoinSet::new(), 0..);
        for algorithm in chosen() {
            for patience in [0, 200].map(Duration::from_millis) {
                let patience = if algorithm.books { patience } else { Duration::ZERO };
                let key: u32 = keys.next().expect("numbers");
                let used = used(algorithm, pool.clone(), key.to_string(), patience);
                runs.spawn(async move { (algorithm.name, patience, used.await) });
            }
        }
        for (name, patience, (admitted, most)) in runs.join_all().await {
            println!(
                "oracle algorithm={name} patience={patience:?} admitted={admitted} most={most}"
            );
            assert!(admitted * 100 >= most * 99, "{name}: {admitted} of {most}");
        }
    });
}
