//! The judges find mistakes: each mutant is one, and some judge must notice it.
//!
//! ```sh
//! cargo test --release --test mutants -- --nocapture
//! ```
//!
//! Mutants of the scripts (`scripts.rs`) answer on a server under the name of the true script
//! (`swap.rs`), so that the crate is judged as it is (`judges.rs`, with the parts of a trial in
//! `tests/support/trial`). No mutant is part of the crate. A survivor fails the run. Before any
//! mutant, every judge must find the true script right.
//!
//! The mutants of the crate are made by `cargo mutants`: see `.cargo/mutants.toml`.

#![cfg(feature = "redisson")]

mod judges;
mod scripts;
#[path = "../support/mod.rs"]
mod support;
mod swap;
#[path = "../support/trial/mod.rs"]
mod trial;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use judges::Judge;
use scripts::{MUTANTS, Mutant};
use support::Server;
use trial::algorithms::Algorithm;
use trial::crew;

#[test]
fn every_mutant_of_the_scripts_is_killed() {
    // Every edit finds its place, and makes a script that compiles.
    let server = Server::start();
    for mutant in &MUTANTS {
        load(&server, mutant.algorithm, Some(mutant));
    }
    drop(server);
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let mut pairs: BTreeSet<(&str, Judge)> = BTreeSet::new();
    pairs.extend(MUTANTS.iter().map(|mutant| (mutant.algorithm, mutant.judge)));
    let mut wrong = Vec::new();
    for (algorithm, judge) in pairs {
        if let Some(finding) = finding(algorithm, judge, None) {
            wrong.push(format!("the true {algorithm} is found wrong by {judge:?}: {finding}"));
        }
    }
    let mut killed = 0;
    for mutant in &MUTANTS {
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
    println!("{killed} of {} killed, in {:.0} s", MUTANTS.len(), begun.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `judge` finds wrong with `algorithm`, whose script has the edit of `mutant`.
fn finding(algorithm: &str, judge: Judge, mutant: Option<&Mutant>) -> Option<String> {
    let server = Server::start();
    let (digest, by) = (load(&server, algorithm, None), load(&server, algorithm, mutant));
    let address = server.url().trim_start_matches("redis://").parse().expect("an address");
    let url = swap::swapping(address, &digest, &by);
    judge.finds(Algorithm::called(algorithm), &server, &url)
}

/// Loads the script of an algorithm as the crate puts it together, with a mutant's edit, and
/// returns its digest.
fn load(server: &Server, algorithm: &str, mutant: Option<&Mutant>) -> String {
    let part = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scripts/{name}.lua"));
        let text = std::fs::read_to_string(path).expect("a script");
        match mutant.filter(|mutant| mutant.file == name) {
            Some(Mutant { from, to, name, .. }) => {
                assert_eq!(text.matches(from).count(), 1, "{name}: {from}");
                text.replace(from, to)
            }
            None => text,
        }
    };
    let (head, tail) = (part("head"), part("tail"));
    let text = match algorithm {
        "several" => format!(
            "{head}\n{}\n{tail}\n{}\nreturn run(all_of(token_bucket, token_bucket))\n",
            part("token_bucket"),
            part("several")
        ),
        "redisson" => {
            let (permits, settings) = (part("redisson"), part("redisson_settings"));
            format!("{head}\n{permits}\n{settings}\nreturn run()\n")
        }
        _ => {
            let name = algorithm.trim_end_matches("_own_debt");
            format!("{head}\n{}\n{tail}\nreturn run({name})\n", part(name))
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut connection = server.connection().await;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD")
            .arg(text)
            .query_async(&mut connection)
            .await
            .expect("a script that compiles")
    })
}

#[test]
#[ignore = "the worker processes of other tests run it"]
fn worker() {
    crew::work();
}
