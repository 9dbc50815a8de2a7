//! With leases: units are spent at most the validity after they were leased. By the instants of
//! the leases nothing goes over. So a window of length `T` holds at most what the limiter admits in
//! a window of length `T + validity`.
//!
//! A leased unit is decided when it is leased, so its decision says nothing about the order among
//! those of other callers. Instead of the model's verdicts, the judge checks the bound of every
//! window.

use std::{fmt, thread};

use crate::turn;
use support::Server;
use support::trial::algorithms::{self, Algorithm, VALIDITY};
use support::trial::crew::{self, Size};
use support::trial::model::Grant;
use support::trial::trace::{Event, Row, by_key};
use support::trial::workload::Workload;

#[derive(Debug, Default)]
struct Findings {
    /// Admissions that break the bound of a window.
    over: usize,
    /// Admissions of units that were leased too long before, or only after the answer.
    late: usize,
    /// Admissions of units that were leased before they were asked for.
    of_leases: usize,
    admitted: usize,
    denied: usize,
    errors: usize,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over, late, of_leases, admitted, denied, errors } = self;
        write!(
            f,
            "over={over} late={late} admitted={admitted} of_leases={of_leases} denied={denied} \
             errors={errors}"
        )
    }
}

#[test]
fn with_leases_nothing_goes_over_the_bound_that_is_wider_by_the_validity() {
    let _turn = turn();
    let size = Size::from_env();
    let (mut faults, mut of_leases) = (Vec::new(), 0);
    // While a limiter warms up, nothing is left that could be leased.
    let is_leased = |one: &&Algorithm| !one.name.starts_with("smooth_warming_up");
    let algorithms: Vec<_> = algorithms::chosen().filter(is_leased).collect();
    // Two at once, since the tasks pause.
    for pair in algorithms.chunks(2) {
        thread::scope(|scope| {
            let begin = |algorithm| (algorithm, scope.spawn(move || run(algorithm, size)));
            let runs: Vec<_> = pair.iter().map(|algorithm| begin(*algorithm)).collect();
            for (algorithm, run) in runs {
                let (calls, found) = run.join().expect("a run");
                println!(
                    "oracle algorithm={} workload=leased calls={calls} {found}",
                    algorithm.name
                );
                of_leases += found.of_leases;
                if found.over + found.late + found.errors > 0 || found.admitted == 0 {
                    faults.push(format!("{}: {found}", algorithm.name));
                }
            }
        });
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(of_leases > 0 || algorithms.is_empty(), "nothing was leased");
}

fn run(algorithm: &Algorithm, size: Size) -> (usize, Findings) {
    let server = Server::with(&[]);
    let (calls, rows) = crew::run(algorithm, Workload::Leased, size, &server.url());
    let mut findings = Findings::default();
    for rows in by_key(&rows).values() {
        judge(algorithm, rows, &mut findings);
    }
    (calls, findings)
}

fn judge(algorithm: &Algorithm, rows: &[Row], findings: &mut Findings) {
    let validity = i64::try_from(VALIDITY.as_micros()).expect("microseconds");
    let mut grants: Vec<Grant> = Vec::new();
    // Those of one instant in the order in which they were decided.
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| (row.now, row.place));
    for row in rows {
        match row.event {
            Event::Allowed | Event::Waited => {}
            Event::Denied | Event::Never => {
                findings.denied += 1;
                continue;
            }
            _ => {
                findings.errors += 1;
                continue;
            }
        }
        findings.admitted += 1;
        // The decision states its instant in whole microseconds. This is the same instant in ns.
        let nanos = |micros: i64| micros.cast_unsigned() * 1_000;
        findings.of_leases += usize::from(nanos(row.now) + 999 < row.sent);
        // It was not spent before it was asked for.
        let in_time = row.sent <= nanos(row.now + validity) + 999;
        findings.late += usize::from(!in_time || nanos(row.now) > row.received);
        grants.push(((row.now + row.wait).into(), row.cost.into()));
    }
    grants.retain(|grant| grant.1 > 0);
    grants.sort_by_key(|grant| grant.0);
    let quota = Workload::Leased.quota(algorithm.quota);
    findings.over += (algorithm.model)(quota).excess(&grants);
}
