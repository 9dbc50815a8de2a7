//! The oracle: several processes call each algorithm, and a model judges every answer.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::{JoinSet, spawn_blocking};

use support::trial::algorithms::{Algorithm, SECOND, Site};
use support::trial::crew::{self, Size};
use support::trial::judge::{Distance, judge};
use support::trial::leases::{LeaseFindings, judge_leases, may_lease};
use support::trial::model::Model;
use support::trial::trace::{self, Event};
use support::trial::workload::Workload;
use support::trial::{Played, edges, saturated, stock};

use crate::access::Form;
use crate::check::{Shared, ended_early, was_lost, words};
use crate::table::{MOST_LOST, Row};

/// What one workload found.
#[derive(Debug, Default)]
struct Found {
    calls: usize,
    over: usize,
    unjustified: usize,
    /// Calls without an answer, and the keys of which only the bound could be judged for that.
    lost: usize,
    by_bound: usize,
    faults: Vec<String>,
    /// Keys whose stored values are the model's, or why they were not read.
    states: Option<Result<usize, String>>,
}

/// The time by which a run is longer: its tasks pause at its end, too.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Every algorithm under every workload.
pub(crate) async fn workloads(proof: &Shared) {
    let algorithms: Vec<_> = proof.algorithms().collect();
    // Two workloads run at once, since some wait more than they ask.
    let runs = (algorithms.len() * Workload::ALL.len()).div_ceil(2) as u32;
    let time = (proof.options.share(52) / runs.max(1)).saturating_sub(PAUSE);
    let time = time.clamp(Duration::from_millis(300), Duration::from_secs(5));
    let (processes, tasks) = (proof.options.processes, proof.options.tasks);
    let size = Size { processes, tasks, time };
    let mut states = Ok(0);
    for algorithm in algorithms {
        let name = format!("oracle {}", algorithm.name);
        proof.bar.set_message(name.clone());
        if let Some(why) = proof.obstacle(algorithm).await {
            proof.add(Row::not_checked(name, why));
            continue;
        }
        let mut found = Vec::new();
        let mut panics: Vec<String> = Vec::new();
        for pair in Workload::ALL.chunks(2) {
            let mut runs = JoinSet::new();
            for workload in pair {
                let (proof, workload) = (proof.clone(), *workload);
                // A thread of its own: the crew is waited for there.
                let run =
                    move || Handle::current().block_on(run(&proof, algorithm, workload, size));
                runs.spawn_blocking(run);
            }
            while let Some(run) = runs.join_next().await {
                match run {
                    Ok(run) => found.push(run),
                    Err(error) => panics.push(words(error)),
                }
            }
        }
        // What is wrong comes before what is only lost.
        panics.sort_by_key(|why| was_lost(why));
        if let Some(why) = panics.into_iter().next() {
            proof.add(ended_early(&name, why));
            continue;
        }
        let sum = |of: fn(&Found) -> usize| found.iter().map(of).sum::<usize>();
        let [calls, over, unjustified] =
            [sum(|one| one.calls), sum(|one| one.over), sum(|one| one.unjustified)];
        let lost = sum(|one| one.lost);
        let done = format!(
            "{calls} calls by {processes} processes in {} ways, over={over} \
             unjustified={unjustified}{}",
            found.len(),
            match (lost, sum(|one| one.by_bound)) {
                (0, _) => String::new(),
                (lost, keys) => format!("; {lost} calls lost, {keys} keys judged by the bound"),
            }
        );
        let mut faults: Vec<String> = Vec::new();
        for one in found {
            faults.extend(one.faults);
            states = match (states, one.states) {
                (Ok(sum), Some(Ok(more))) => Ok(sum + more),
                (Ok(_), Some(Err(why))) => Err(why),
                (states, _) => states,
            };
        }
        proof.add(match faults.is_empty() && lost * MOST_LOST > calls {
            true => Row::lost(name, format!("{lost} of {calls} calls had no answer")),
            false => Row::judged(name, done, &faults),
        });
    }
    let name = "stored states";
    proof.add(match states {
        Ok(0) => Row::not_checked(name, "no algorithm was checked"),
        Ok(keys) => Row::kept(name, format!("{keys} values are the model's")),
        Err(why) => Row::not_checked(name, why),
    });
}

async fn run(
    proof: &Shared,
    algorithm: &'static Algorithm,
    workload: Workload,
    size: Size,
) -> Found {
    let prefix = proof.prefix_of(&format!("{}-{}", algorithm.name, workload.name()));
    let quota = workload.quota(algorithm.quota);
    let (calls, rows) = match trace(proof, algorithm, workload, size, &prefix) {
        Ok(trace) => trace,
        Err(why) => return Found { faults: vec![why], ..Found::default() },
    };
    let (mut findings, models) = judge(&rows, Distance::Afar, || (algorithm.model)(quota));
    if rows.len() != calls {
        findings.faults.push(format!("{calls} calls, but {} outcomes", rows.len()));
    }
    let (lost, by_bound) = (findings.count(Event::Lost), findings.by_bound);
    let mut faults = findings.faults;
    if findings.over > 0 && faults.is_empty() {
        faults.push(String::from("more is admitted than the bound allows"));
    }
    let states = match by_bound {
        0 => stored(proof, &prefix, &models).await,
        _ => Err(String::from("calls were lost")),
    };
    let states = states.map(|wrong| {
        faults.extend(wrong);
        models.len()
    });
    let place = |fault: String| format!("{}: {fault}", workload.name());
    Found {
        calls,
        over: findings.over,
        unjustified: findings.unjustified,
        faults: faults.into_iter().map(place).collect(),
        lost,
        by_bound,
        states: Some(states),
    }
}

/// Runs the processes. Returns how many calls they began, and a row for each.
fn trace(
    proof: &Shared,
    algorithm: &Algorithm,
    workload: Workload,
    size: Size,
    prefix: &str,
) -> Result<(usize, Vec<trace::Row>), String> {
    let quota = workload.quota(algorithm.quota);
    let site = Site::under(prefix, proof.access.patient_pool()?);
    let limiter = (algorithm.limiter)(quota, site);
    // Every key that a task may ask for.
    let keys = 0..(u32::from(size.processes) * u32::from(size.tasks)).max(4);
    debug_assert!(keys.end < SECOND);
    proof.cleaner.owe_judged(&limiter, keys);
    let (folder, url) = (&proof.folder, &proof.access.url);
    Ok(crew::run_with(&worker, folder, prefix, algorithm, workload, size, url))
}

/// A process of this program that calls.
fn worker() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.stderr(Stdio::null());
    command
}

/// Compares what the server holds with what the models say. An error says why that is impossible.
async fn stored(
    proof: &Shared,
    prefix: &str,
    models: &BTreeMap<u32, Box<dyn Model>>,
) -> Result<Vec<String>, String> {
    let connections = proof.connections.as_ref().map_err(Clone::clone)?;
    if proof.access.form == Form::Cluster {
        return Err(String::from("a cluster: the keys of a run are on several masters"));
    }
    let names = connections.names(&format!("{prefix}:")).await?;
    let mut connection = connections.holding("0")?;
    // The values are read by their types.
    crate::access::ask::<String>(&mut connection, &["TYPE", &format!("{prefix}:")]).await?;
    let wrong = stock::wrong_states(&mut connection, names, models).await;
    wrong.map_err(|error| error.to_string())
}

/// Each algorithm with leases: a window admits no more than its bound, which is wider by the
/// validity of a lease.
pub(crate) async fn leases(proof: &Shared) {
    let name = "leases keep their bound";
    let algorithms = possible(proof, may_lease).await;
    if algorithms.is_empty() {
        return proof.add(Row::not_checked(name, "no algorithm can be checked"));
    }
    let time = (proof.options.share(6) / algorithms.len() as u32).saturating_sub(PAUSE);
    let time = time.clamp(Duration::from_millis(300), Duration::from_secs(5));
    let size = Size { processes: proof.options.processes, tasks: proof.options.tasks, time };
    let shared = proof.clone();
    let check = async move {
        let (mut all, mut calls, mut faults) = (LeaseFindings::default(), 0, Vec::new());
        let count = algorithms.len();
        for algorithm in algorithms {
            let prefix = shared.prefix_of(&format!("leases-{}", algorithm.name));
            let run = {
                let shared = shared.clone();
                move || trace(&shared, algorithm, Workload::Leased, size, &prefix)
            };
            // A thread of its own: the crew is waited for there.
            let run = spawn_blocking(run).await;
            let run = run.unwrap_or_else(|error| resume_unwind(error.into_panic()));
            let (begun, rows) = match run {
                Ok(trace) => trace,
                Err(why) => return Row::not_checked(name, why),
            };
            let found = judge_leases(algorithm, &rows, Distance::Afar);
            if found.is_wrong() || rows.len() != begun {
                faults.push(format!("{}: {begun} calls, {found}", algorithm.name));
            }
            calls += begun;
            all += found;
        }
        if faults.is_empty() && all.lost * MOST_LOST > calls {
            return Row::lost(name, format!("{} of {calls} calls had no answer", all.lost));
        }
        if all.of_leases == 0 {
            return Row::not_checked(name, "nothing was leased in so short a time");
        }
        let done = format!(
            "{} of {calls} calls admitted by {count} algorithms, {} from leases, over={} late={}",
            all.admitted, all.of_leases, all.over, all.late
        );
        Row::judged(name, done, &faults)
    };
    proof.run(name, check).await;
}

/// The algorithms of a kind that this server and its rights allow.
async fn possible(proof: &Shared, is_meant: fn(&Algorithm) -> bool) -> Vec<&'static Algorithm> {
    let mut algorithms = Vec::new();
    for algorithm in proof.algorithms().filter(|algorithm| is_meant(algorithm)) {
        if proof.obstacle(algorithm).await.is_none() {
            algorithms.push(algorithm);
        }
    }
    algorithms
}

/// Refusals that each algorithm is led to.
const STATES: usize = 600;

/// Calls right before and right after the instant when the wait of a refusal ends.
pub(crate) async fn edges(proof: &Shared) {
    let name = "waits are exact";
    let algorithms = possible(proof, |algorithm| algorithm.at_once).await;
    if algorithms.is_empty() {
        return proof.add(Row::not_checked(name, "no algorithm can be checked"));
    }
    let shared = proof.clone();
    let time = proof.options.share(8);
    let check = async move {
        let (mut met, count) = (Played::default(), algorithms.len());
        let begun = Instant::now();
        for (done, algorithm) in algorithms.into_iter().enumerate() {
            let prefix = shared.prefix_of(&format!("edges-{}", algorithm.name));
            let pool = shared.access.patient_pool().expect("a pool");
            let site = || Site::under(&prefix, pool.clone());
            let quota = Workload::Saturating.quota(algorithm.quota);
            shared.cleaner.owe_judged(&(algorithm.limiter)(quota, site()), edges::keys());
            let end = begun + time * (done as u32 + 1) / count as u32;
            met += edges::walk_at(algorithm, site, STATES, Some(end)).await;
        }
        let done = format!("both sides of {} edges of {count} algorithms, to 1 us", met.done);
        Row::played(name, done, met)
    };
    proof.run(name, check).await;
}

/// Called without pause, each algorithm admits nearly all that it may.
pub(crate) async fn uses(proof: &Shared) {
    let name = "99 % of the limit is used";
    // Each algorithm is called so often, one call after another.
    let calls = 1_700;
    if proof.met.round_trip * calls > proof.options.share(10).max(Duration::from_secs(5)) {
        return proof.add(Row::not_checked(name, "the server is too far for --minutes"));
    }
    let algorithms = possible(proof, |_| true).await;
    let shared = proof.clone();
    let check = async move {
        let mut runs = JoinSet::new();
        for algorithm in algorithms {
            for (key, patience) in [0, 200].into_iter().enumerate() {
                let patience = if algorithm.reserves { patience } else { 0 };
                let patience = Duration::from_millis(patience);
                let prefix = shared.prefix_of(&format!("use-{}", algorithm.name));
                let pool = shared.access.patient_pool().expect("a pool");
                let site = || Site::under(&prefix, pool.clone());
                let quota = Workload::Saturating.quota(algorithm.quota);
                let limiter = (algorithm.limiter)(quota, site());
                shared.cleaner.owe_judged(&limiter, [key as u32]);
                let used = saturated::used(algorithm, site(), key.to_string(), patience);
                runs.spawn(async move { (algorithm.name, used.await) });
            }
        }
        let (mut faults, count) = (Vec::new(), runs.len());
        for (name, (admitted, most)) in runs.join_all().await {
            if admitted * 100 < most * 99 {
                faults.push(format!("{name}: {admitted} of {most}"));
            }
        }
        Row::judged(name, format!("{count} runs of {calls} calls"), &faults)
    };
    proof.run(name, check).await;
}
