//! Every history up to a size: each algorithm's step, and each pair of them as a tuple, over all
//! costs, waits, refunds, settlements and clock steps within small ranges.
//!
//! Nothing is random here. Quotas have periods of a few µs, so every instant of a window is tried.
//! `kinds.rs` lists the algorithms and their quotas, `explore.rs` makes the histories, `checks.rs`
//! says what has to hold at each of their instants, and `book.rs` counts what was admitted.
//!
//! A history of depth `n` has `n` events: each is a step of the clock, and then a charge, a refund
//! or a settlement. Equal states with equal books are visited once.
//!
//! `DEPTH=3 cargo test -p tests --release --test algorithms every_history -- --nocapture` makes
//! longer histories: `DEPTH` is the depth for one algorithm, and pairs have one event less.

mod book;
mod checks;
mod explore;
mod kinds;

use std::time::Instant;

use explore::explore;
use kinds::{Kind, one_of_each};
use tower_sluice::algorithm::{Algorithm, AnyAlgorithm};

/// The events of a history of one algorithm, unless `DEPTH` says another number.
const DEFAULT_DEPTH: usize = 2;

fn depth() -> usize {
    std::env::var("DEPTH").map_or(DEFAULT_DEPTH, |text| text.parse().expect("a number"))
}

/// Explores a kind, and prints what it saw.
fn run<A: Algorithm>(kind: &Kind<A>, depth: usize) {
    let begun = Instant::now();
    let seen = explore(kind, depth);
    println!(
        "histories algorithm={} depth={depth} states={} nodes={} seconds={:.2}",
        kind.name,
        seen.states,
        seen.nodes,
        begun.elapsed().as_secs_f64()
    );
    if let Some(violation) = seen.violation {
        panic!("{} after {} nodes: {violation}", kind.name, seen.nodes);
    }
}

macro_rules! each_alone {
    ($($name:ident: $kinds:ident;)+) => {$(
        #[test]
        fn $name() {
            kinds::$kinds().iter().for_each(|kind| run(kind, depth()));
        }
    )+};
}

each_alone! {
    every_history_of_a_token_bucket: token_buckets;
    every_history_of_a_budget: budgets;
    every_history_of_concurrency: concurrencies;
    every_history_of_a_fixed_window: fixed_windows;
    every_history_of_a_sliding_log: sliding_logs;
    every_history_of_a_sliding_window: sliding_windows;
    every_history_of_a_sliding_counter: sliding_counters;
    every_history_of_smooth_bursty: smooth_bursties;
    every_history_of_smooth_warming_up: smooth_warming_ups;
}

/// Explores the pairs whose first member has an index of this parity, so that two threads share
/// them.
fn pairs(parity: usize) {
    let (first, second) = one_of_each();
    for (index, one) in first.iter().enumerate().filter(|(index, _)| index % 2 == parity) {
        for other in &second[index..] {
            let pair: Kind<Vec<AnyAlgorithm>> = one.with(other);
            run(&pair, depth().saturating_sub(1));
        }
    }
}

#[test]
fn every_history_of_every_pair_one() {
    pairs(0);
}

#[test]
fn every_history_of_every_pair_two() {
    pairs(1);
}
