//! The oracle: proves over real Redis, many processes and every window that nothing goes over a
//! limit and nothing is refused without a reason.
//!
//! A count over a whole run misses most bugs of limiters, so a trace is judged, call by call: the
//! parts of such a trial stand in `tests/support/trial`. `exact.rs` calls right at the edges, and
//! `saturated.rs` without pause, with a clock of their own. `storm.rs` gives thousands of
//! reservations back at once. `held.rs` plays holds and settlements of a budget, which no event of
//! a trace could date, with a clock of its own. `leased.rs` runs the processes with leases.
//! `replayed.rs` plays traffic through `replay`, with units kept free, grants, pauses, suspended
//! plans, calendars and units in flight.
//! `planted.rs` shows that the judge finds every mistake planted in the histories of `history.rs`.
//! `mutants/` shows that it finds every mistake planted in the scripts.
//!
//! A new algorithm is a model and a line in `trial/algorithms.rs`. The size comes from
//! `ORACLE_PROCESSES`, `ORACLE_TASKS` and `ORACLE_SECONDS` (4, 32, and 1 for each workload),
//! `ORACLE_STATES` (600 refusals met at their edges for each algorithm) and `ORACLE_CANCELS` (50
//! reservations in a storm), `ORACLE_HISTORIES` (30 of a budget) and `ORACLE_REPLAYS` (2 for each
//! policy). `ORACLE_ONLY` picks the algorithms whose names begin so. These sizes suit a check; a
//! proof takes larger ones:
//!
//! ```sh
//! ORACLE_PROCESSES=8 ORACLE_TASKS=128 ORACLE_SECONDS=5 ORACLE_STATES=100000 ORACLE_CANCELS=1000 \
//!   ORACLE_HISTORIES=2000 cargo test -p tests --release --test oracle -- --nocapture
//! ```

#![cfg(feature = "redisson")]

mod exact;
mod held;
mod history;
mod leased;
mod mutants;
mod planted;
mod replayed;
mod saturated;
mod storm;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use support::Server;
use support::trial::algorithms::{self, Algorithm};
use support::trial::crew::{self, Size};
use support::trial::judge::{Distance, judge};
use support::trial::stock;
use support::trial::trace::Event;
use support::trial::workload::Workload;

/// Tests that load the machine take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn nothing_goes_over_and_nothing_is_refused_without_a_reason() {
    let _turn = turn();
    let size = Size::from_env();
    let mut faults = Vec::new();
    for algorithm in algorithms::chosen() {
        // Two at once, since some workloads wait more than they ask.
        for pair in Workload::ALL.chunks(2) {
            thread::scope(|scope| {
                let begin = |workload| scope.spawn(move || faults_of(algorithm, workload, size));
                let runs: Vec<_> = pair.iter().map(|workload| begin(*workload)).collect();
                faults.extend(runs.into_iter().flat_map(|run| run.join().expect("a run")));
            });
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs one workload, prints its line, and returns what is wrong.
fn faults_of(algorithm: &Algorithm, workload: Workload, size: Size) -> Vec<String> {
    let server = Server::with(&[]);
    let quota = workload.quota(algorithm.quota);
    let (calls, rows) = crew::run(algorithm, workload, size, &server.url());
    let (mut findings, models) = judge(&rows, Distance::Near, || (algorithm.model)(quota));

    let share = findings.utilisation().map_or("-".into(), |share| format!("{share:.3}"));
    println!(
        "oracle algorithm={} workload={} calls={calls} over={} unjustified={} utilisation={share} \
         allowed={} waited={} denied={} never={} errors={} cancelled={} refunded={}",
        algorithm.name,
        workload.name(),
        findings.over,
        findings.unjustified,
        findings.count(Event::Allowed),
        findings.count(Event::Waited),
        findings.count(Event::Denied),
        findings.count(Event::Never),
        findings.count(Event::Error) + findings.count(Event::Lost),
        findings.count(Event::Cancelled),
        findings.count(Event::Refunded),
    );

    if rows.len() != calls {
        findings.faults.push(format!("{calls} calls, but {} outcomes", rows.len()));
    }
    let (fewest, changes) = (findings.fewest, findings.changes);
    let writes = models.values().next().map_or(0..=0, |model| model.writes(fewest, changes, calls));
    findings.faults.extend(stock::faults(&server, &models, algorithm.runs(rows.len()), writes));
    let place = format!("{} {}", algorithm.name, workload.name());
    findings.faults.iter().map(|fault| format!("{place}: {fault}")).collect()
}

#[test]
#[ignore = "the worker processes of other tests run it"]
fn worker() {
    crew::work(algorithms::pool);
}
