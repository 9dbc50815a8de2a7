//! The judges find mistakes: each mutant is one, and some judge must notice it.
//!
//! ```sh
//! cargo test -p tests --release --test oracle mutants -- --ignored --nocapture
//! ```
//!
//! Mutants of the scripts (`edits.txt`) answer on a server under the name of the true script
//! (`swap.rs`), so that the crate is judged as it is (`judges.rs`, with the parts of a trial in
//! `tests/support/trial`). No mutant is part of the crate. A survivor fails the run. Before any
//! mutant, every judge must find the true script right.
//!
//! The mutants of the crate are made by `cargo mutants`: see `.cargo/mutants.toml`.

mod edits;
mod judges;
mod swap;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use edits::{Mutant, mutants};
use judges::Judge;
use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Budget, Concurrency, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};
use tower_sluice::redis::script_texts;

use support::Server;

const FIVE: Quota = Quota::per_second(5);
const SECOND: Duration = Duration::from_secs(1);

#[test]
#[ignore = "minutes of it: CONTRIBUTING.md"]
fn every_mutant_of_the_scripts_is_killed() {
    // Every edit finds its place, and makes a script that compiles.
    let (server, mutants) = (Server::with(&[]), mutants());
    for mutant in &mutants {
        load(&server, mutant.algorithm, Some(mutant));
    }
    drop(server);
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let mut pairs: BTreeSet<(&str, Judge)> = BTreeSet::new();
    pairs.extend(mutants.iter().map(|mutant| (mutant.algorithm, mutant.judge)));
    let mut wrong = Vec::new();
    for (algorithm, judge) in pairs {
        if let Some(finding) = finding(algorithm, judge, None) {
            wrong.push(format!("the true {algorithm} is found wrong by {judge:?}: {finding}"));
        }
    }
    let mut killed = 0;
    for mutant in &mutants {
        match finding(mutant.algorithm, mutant.judge, Some(mutant)) {
            Some(finding) => {
                println!("mutant name={} killed_by={:?}: {finding}", mutant.name, mutant.judge);
                killed += 1;
            }
            None => {
                println!("mutant name={} killed_by=nobody", mutant.name);
                wrong.push(format!("{} survived", mutant.name));
            }
        }
    }
    let _ = std::panic::take_hook();
    println!("{killed} of {} killed, in {:.0} s", mutants.len(), begun.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns what `judge` finds wrong with `algorithm`, whose script has the edit of `mutant`.
fn finding(algorithm: &str, judge: Judge, mutant: Option<&Mutant>) -> Option<String> {
    let server = Server::with(&[]);
    let digests = load(&server, algorithm, None).into_iter();
    let swaps = digests.zip(load(&server, algorithm, mutant)).collect();
    let address = server.url().trim_start_matches("redis://").parse().expect("an address");
    let url = swap::swapping(address, swaps);
    judge.finds(algorithm, &server, &url)
}

/// The texts of an algorithm's scripts, as the crate puts them together, with a mutant's edit.
fn texts(algorithm: &str, mutant: Option<&Mutant>) -> Vec<String> {
    let mut texts = match algorithm {
        "token_bucket" => script_texts(&TokenBucket::new(FIVE)).to_vec(),
        "budget" => script_texts(&Budget::new(FIVE)).to_vec(),
        "concurrency" => script_texts(&Concurrency::of(FIVE)).to_vec(),
        "fixed_window" => script_texts(&FixedWindow::new(FIVE)).to_vec(),
        "sliding_log" => script_texts(&SlidingLog::new(FIVE)).to_vec(),
        "sliding_window" => script_texts(&SlidingWindow::new(FIVE)).to_vec(),
        "sliding_counter" => script_texts(&SlidingCounter::new(FIVE)).to_vec(),
        "smooth_bursty" | "smooth_bursty_own_debt" => {
            script_texts(&SmoothBursty::new(FIVE)).to_vec()
        }
        "smooth_warming_up" => script_texts(&SmoothWarmingUp::new(FIVE, SECOND)).to_vec(),
        "several" => script_texts(&vec![TokenBucket::new(FIVE); 2]).to_vec(),
        "redisson" => {
            let permits =
                include_str!("../../../crates/tower-sluice-redisson/scripts/redisson.lua");
            let settings =
                include_str!("../../../crates/tower-sluice-redisson/scripts/redisson_settings.lua");
            vec![format!("{permits}{settings}")]
        }
        other => panic!("no algorithm is called {other}"),
    };
    if let Some(Mutant { name, from, to, .. }) = mutant {
        assert!(texts.iter().any(|text| text.contains(from)), "{name}: {from}");
        texts.iter_mut().for_each(|text| *text = text.replace(from, to));
    }
    texts
}

/// Loads the scripts of an algorithm, and returns their digests.
fn load(server: &Server, algorithm: &str, mutant: Option<&Mutant>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut connection = server.connection().await;
        let mut digests = Vec::new();
        for text in texts(algorithm, mutant) {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            let digest = load.query_async(&mut connection).await;
            digests.push(digest.expect("a script that compiles"));
        }
        digests
    })
}
