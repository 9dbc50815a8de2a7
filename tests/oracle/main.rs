//! The oracle: many processes ask one Redis, every decision is written down, and judges who share no code with
//! the limiter replay them: nothing over the bound in any window, no refusal without a reason.
//!
//! `cargo test --release --test oracle -- --nocapture` prints one line per algorithm and workload. The process
//! starts itself as workers; `ORACLE_PROCESSES`, `ORACLE_TASKS`, `ORACLE_MILLIS` and `ORACLE_PROBES` set the size.

#![allow(unreachable_pub, reason = "a binary of several files")]

#[path = "../support/mod.rs"]
mod support;

mod judge;
mod trace;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use judge::{FixedWindowModel, Model, TokenBucketModel, Verdicts};
use support::Server;
use tower_sluice::Quota;
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use worker::{Role, Workload};

/// An algorithm under judgement: how it works, and the model that it is held against.
struct Case {
    name: &'static str,
    work: fn(Role),
    probe: fn(&str, usize) -> usize,
    model: fn(Quota) -> Box<dyn Model>,
}

/// A new algorithm is one line here, and a model in `judge.rs`.
const CASES: [Case; 2] = [
    Case {
        name: "token_bucket",
        work: |role| worker::work(TokenBucket::new(role.quota()), role),
        probe: |url, probes| worker::probe(TokenBucket::new, url, probes),
        model: |quota| Box::new(TokenBucketModel::new(quota)),
    },
    Case {
        name: "fixed_window",
        work: |role| worker::work(FixedWindow::new(role.quota()), role),
        probe: |url, probes| worker::probe(FixedWindow::new, url, probes),
        model: |quota| Box::new(FixedWindowModel::new(quota)),
    },
];

fn main() {
    if let Some(role) = Role::from_env() {
        let case = CASES.iter().find(|case| case.name == role.algorithm).expect("a case");
        return (case.work)(role);
    }
    // A filter that names other tests is not for this one.
    if std::env::args().skip(1).any(|word| !word.starts_with('-') && !"oracle".contains(&word)) {
        return;
    }
    judge::bite();
    let processes = size("ORACLE_PROCESSES", 4);
    let tasks = size("ORACLE_TASKS", 32);
    let millis = size("ORACLE_MILLIS", 1_000);
    let probes = size("ORACLE_PROBES", 1_000);
    let mut sound = true;
    for case in &CASES {
        for workload in Workload::ALL {
            let server = Server::start();
            let roles = (0..processes).map(|process| Role {
                algorithm: case.name.to_owned(),
                workload,
                url: server.url(),
                process,
                tasks,
                millis,
            });
            let workers: Vec<_> = roles.map(start).collect();
            let rows = gather(workers);
            let verdicts = judge::judge(case.model, workload.quota(), &rows);
            let written = worker::written(&server);
            sound &= report(case.name, workload, &verdicts, written);
        }
        let server = Server::start();
        let exact = (case.probe)(&server.url(), probes);
        println!("oracle algorithm={} exact_waits={exact} of {probes}", case.name);
        sound &= exact == probes;
    }
    assert!(sound, "a promise is broken");
}

fn report(algorithm: &str, workload: Workload, verdicts: &Verdicts, written: u64) -> bool {
    let Verdicts { calls, over, unjustified, errors, unlike, changes, utilisation } = verdicts;
    println!(
        "oracle algorithm={algorithm} workload={workload} calls={calls} over={over} \
         unjustified={unjustified} errors={errors} unlike={unlike} writes={written} \
         changes={changes} utilisation={utilisation:.3}",
        workload = workload.name(),
    );
    let used = workload != Workload::Saturating || *utilisation >= 0.99;
    let wrote = written == *changes as u64;
    over + unjustified + errors + unlike == 0 && used && wrote && *calls > 0
}

fn size(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

/// Starts this program again as a worker, and waits until it is ready.
fn start(role: Role) -> (Child, Role) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    role.to_env(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a worker");
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.as_mut().expect("its words"));
    said.read_line(&mut line).expect("its word");
    assert_eq!(line, "ready\n");
    (child, role)
}

/// Lets all workers go at once, and collects what they wrote down.
fn gather(mut workers: Vec<(Child, Role)>) -> Vec<trace::Row> {
    for (child, _) in &mut workers {
        child.stdin.take().expect("its ear").write_all(b"go\n").expect("told");
    }
    let mut rows = Vec::new();
    for (mut child, role) in workers {
        assert!(child.wait().expect("ended").success(), "a worker failed");
        rows.extend(trace::read(&role.file()));
    }
    rows
}
