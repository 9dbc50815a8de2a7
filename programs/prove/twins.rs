//! Twins: the scripts on the server and the Rust code in this process answer alike.

use std::time::Instant;

use tokio::task::JoinSet;
use tower_sluice::LimiterExt;

use support::trial::algorithms::Algorithm;
use support::trial::twins::TWINS;
use support::trial::{Played, held};

use crate::check::{Shared, ended_early, was_lost, words};
use crate::table::Row;

/// The algorithms whose histories need rights of their own.
const WITH_LOGS: [&str; 2] = ["sliding_log", "several"];

/// Random histories with a clock of their own.
pub(crate) async fn scripts(proof: &Shared) {
    proof.bar.set_message("twins");
    let end = Instant::now() + proof.options.share(20);
    let no_logs = proof.obstacle(Algorithm::called("sliding_log")).await;
    let mut runs = JoinSet::new();
    for twins in TWINS.iter().filter(|twins| twins.name.starts_with(&proof.options.only)) {
        let name = format!("twins {}", twins.name);
        if let Some(why) = no_logs.clone().filter(|_| WITH_LOGS.contains(&twins.name)) {
            proof.add(Row::not_checked(name, why));
            continue;
        }
        let (shared, pool) = (proof.clone(), proof.pool(&format!("twins-{}", twins.name)));
        runs.spawn(async move {
            let pool = match pool {
                Ok(pool) => pool,
                Err(why) => return Row::not_checked(name, why),
            };
            let cleaner = shared.clone();
            let begins = move |limiter, keys| cleaner.cleaner.owe(limiter, keys);
            // So that a panic has the name of its check.
            let mut task = JoinSet::new();
            task.spawn(async move { twins.agree_until(pool, end, begins).await });
            match task.join_next().await.expect("a run") {
                Ok(played) => {
                    let done = format!("{} steps, alike in every field", played.done);
                    Row::played(name, done, played)
                }
                Err(error) => ended_early(&name, words(error)),
            }
        });
    }
    while let Some(run) = runs.join_next().await {
        proof.add(run.unwrap_or_else(|error| ended_early("twins", words(error))));
    }
}

/// Histories of budgets.
const HISTORIES: u64 = 30;

/// Budgets: what is held and settled is the model's.
pub(crate) async fn budgets(proof: &Shared) {
    let name = "budgets hold and settle";
    let end = Instant::now() + proof.options.share(5);
    let shared = proof.clone();
    let check = async move {
        let pool = match shared.pool("budgets") {
            Ok(pool) => pool,
            Err(why) => return Row::not_checked(name, why),
        };
        let (mut runs, mut begun) = (JoinSet::new(), 0);
        let (mut played, mut faults) = (Played::default(), Vec::new());
        loop {
            while runs.len() < 8 && begun < HISTORIES && (begun == 0 || Instant::now() < end) {
                let limiter = held::named(pool.clone(), begun).boxed();
                shared.cleaner.owe(limiter, vec![held::KEY.to_owned()]);
                runs.spawn(held::walk_one(pool.clone(), begun));
                begun += 1;
            }
            let Some(run) = runs.join_next().await else { break };
            match run.unwrap_or_else(|error| Err(words(error))) {
                Ok(more) => played.done += more,
                Err(why) if was_lost(&why) => played.cut_short += 1,
                Err(why) => faults.push(why),
            }
        }
        played.parts = begun as usize;
        let done = format!("{} settlements in {begun} histories", played.done);
        match faults.is_empty() {
            true => Row::played(name, done, played),
            false => Row::judged(name, done, &faults),
        }
    };
    proof.run(name, check).await;
}
