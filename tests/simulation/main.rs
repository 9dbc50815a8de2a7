//! A simulated world: the crate's client, a network that fails and servers, in one thread with
//! paused time, all of it from one seed.
//!
//! `world.rs` runs the callers of a seed and checks what happened, by the server's own book, which
//! `account.rs` reads. `network.rs` is the sockets and their faults. `server.rs` is a simulated
//! server: a value that runs the real scripts in the real interpreter; `commands.rs` lists what it
//! understands, and `compared.rs` holds it against a real one.
//!
//! `SEEDS=1000000 cargo test --release --test simulation worlds -- --nocapture` runs more worlds,
//! from `SEED` on. `STOP=1` ends with the first that fails. `planted.rs` says whether they find
//! faults that are planted.

#![cfg(feature = "redis")]
#![allow(unreachable_pub, reason = "the modules are private to this test")]

mod account;
mod book;
mod commands;
mod compared;
mod keyspace;
mod lua;
mod network;
mod packing;
mod planted;
mod promises;
mod resp;
mod server;
mod servers;
mod session_commands;
mod slots;
mod sorted_set;
mod strikes;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::collections::BTreeMap;

/// How many worlds run, unless `SEEDS` says another number.
const DEFAULT_SEEDS: u64 = 20;

#[test]
fn worlds_keep_every_promise() {
    let seeds =
        std::env::var("SEEDS").map_or(DEFAULT_SEEDS, |text| text.parse().expect("a number"));
    let first: u64 = std::env::var("SEED").map_or(0, |text| text.parse().expect("a number"));
    let (mut violations, mut callers, mut hours, mut injected) = (0, 0, 0.0, BTreeMap::new());
    for seed in first..first + seeds {
        let report = world::run(seed);
        callers += report.callers;
        hours += report.simulated.as_secs_f64() / 3_600.0;
        for (kind, times) in report.injected {
            *injected.entry(kind).or_insert(0) += times;
        }
        if let Some(violation) = report.violation {
            violations += 1;
            println!("violation seed={seed} {violation}");
            if std::env::var_os("STOP").is_some() {
                break;
            }
        }
    }
    let faults: u64 = injected.values().sum();
    println!(
        "simulation seeds={seeds} hours={hours:.2} callers={callers} faults={faults} \
         violations={violations}"
    );
    for (kind, times) in injected {
        println!("fault kind={kind} injected={times}");
    }
    assert_eq!(violations, 0);
}

#[test]
fn a_seed_happens_again_in_the_same_way() {
    for seed in 0..2 {
        let (once, again) = (world::run(seed), world::run(seed));
        assert!(once.callers > 100, "{seed}");
        let pairs = once.timeline.lines().zip(again.timeline.lines());
        for (line, (one, other)) in pairs.enumerate() {
            assert_eq!(one, other, "seed {seed}, line {line}");
        }
        assert_eq!(once.timeline, again.timeline, "{seed}");
    }
}
