//! With leases: no window admits more than its bound, which is wider by the validity of a lease.

use std::thread;

use crate::turn;
use support::Server;
use support::trial::algorithms::{self, Algorithm};
use support::trial::crew::{self, Size};
use support::trial::judge::Distance;
use support::trial::leases::{LeaseFindings, judge_leases, may_lease};
use support::trial::workload::Workload;

#[test]
fn with_leases_nothing_goes_over_the_bound_that_is_wider_by_the_validity() {
    let _turn = turn();
    let size = Size::from_env();
    let (mut faults, mut of_leases) = (Vec::new(), 0);
    let algorithms: Vec<_> =
        algorithms::chosen().filter(|algorithm| may_lease(algorithm)).collect();
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
                if found.is_wrong() || found.lost > 0 || found.admitted == 0 {
                    faults.push(format!("{}: {found}", algorithm.name));
                }
            }
        });
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(of_leases > 0 || algorithms.is_empty(), "nothing was leased");
}

fn run(algorithm: &Algorithm, size: Size) -> (usize, LeaseFindings) {
    let server = Server::with(&[]);
    let (calls, rows) = crew::run(algorithm, Workload::Leased, size, &server.url());
    (calls, judge_leases(algorithm, &rows, Distance::Near))
}
