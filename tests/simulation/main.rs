//! A simulated world: the crate's client, a network that fails and servers, in one thread with
//! paused time, all of it from one seed.
//!
//! `plan.rs` draws what happens in a world, `world.rs` lives it, and `checks.rs` holds the promises
//! against the servers' own books, which `account.rs` reads. `clients.rs` is the crate as an
//! application uses it, and `policies.rs` its tables of policies, which are exchanged. `network.rs`
//! is the network and its faults, with a `clock.rs`, a `host.rs` for each server and a `socket.rs`
//! for each connection; `servers.rs` is the servers and what strikes them. `server.rs` is
//! one simulated server: a value that runs the real scripts in the real interpreter; `commands.rs`
//! lists what it understands, and `compared.rs` holds it against a real one.
//!
//! ```sh
//! export SEEDS=1000000
//! cargo test -p tests --release --all-features --test simulation worlds -- --nocapture
//! export SEED=7 SEEDS=1 SHRINK=1
//! cargo test -p tests --all-features --test simulation worlds -- --nocapture
//! ```
//!
//! The first runs many worlds, from `SEED` on, on all processors; with `STOP=1` until the first
//! violation. The second shrinks the plan of a violation, and prints a timeline of what is left.
//! `tests/planted.sh` says whether the worlds find faults that are planted. `runtimes.rs`,
//! `redisson.rs`, `own_costs.rs` and `endurance.rs` are smaller worlds of their own.

#![cfg(all(feature = "redis", feature = "policies"))]
#![allow(unreachable_pub, reason = "the modules are private to this test")]

mod account;
mod book;
mod checks;
mod clients;
mod clock;
mod commands;
mod compared;
mod endurance;
mod first_charges;
mod host;
mod keyspace;
mod lua;
mod network;
mod own_costs;
mod packing;
mod plan;
mod policies;
mod promises;
#[cfg(feature = "redisson")]
mod redisson;
mod resp;
mod runtimes;
mod server;
mod servers;
mod session_commands;
mod slots;
mod socket;
mod sorted_set;
mod strikes;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use plan::{Plan, Then};
use servers::Topology;
use world::Report;

/// The number of worlds that run, unless `SEEDS` says another number.
const DEFAULT_SEEDS: u64 = 60;

/// Seeds that broke a promise, or a check of it, until that was mended. Their worlds have no dice
/// that are newer: no pauses, holds, bans or grants.
const MENDED: [u64; 63] = [
    544,
    11_272,
    15_839,
    33_191,
    50_697,
    57_731,
    58_085,
    92_459,
    149_054,
    211_096,
    235_290,
    312_572,
    392_100,
    418_688,
    454_264,
    459_665,
    477_339,
    540_066,
    548_908,
    588_755,
    595_254,
    609_666,
    642_578,
    661_481,
    730_821,
    797_213,
    855_781,
    870_517,
    1_037_542,
    1_095_254,
    1_135_370,
    1_149_806,
    1_309_854,
    1_494_181,
    1_543_413,
    1_673_627,
    1_770_069,
    1_779_892,
    1_866_459,
    2_058_150,
    2_066_698,
    2_162_607,
    2_175_583,
    2_251_183,
    8_069_025,
    9_094_370,
    12_047_836,
    20_000_708,
    20_001_408,
    20_003_590,
    20_011_488,
    20_013_398,
    20_027_040,
    60_021_655,
    70_008_619,
    70_013_161,
    80_000_399,
    80_001_933,
    80_002_878,
    90_025_092,
    120_035_811,
    130_003_131,
    130_012_004,
];

/// The same, with all dice but those for calendars of months and of time zones.
const MENDED_LATER: [u64; 14] = [
    270_004_976,
    270_012_432,
    270_052_949,
    270_053_483,
    270_057_308,
    270_081_760,
    270_086_664,
    270_088_231,
    300_003_699,
    300_035_780,
    300_043_676,
    2_200_058_557,
    2_400_002_974,
    2_600_005_074,
];

/// A thread that makes a longer turn stood still, as the crate sees it.
const SHORT_TURN: Duration = Duration::from_millis(5);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// The sums of all worlds.
#[derive(Default)]
struct Sums {
    seeds: u64,
    hours: f64,
    callers: usize,
    injected: BTreeMap<String, u64>,
    violations: u64,
}

#[test]
fn worlds_keep_every_promise() {
    let (first, seeds) = (number("SEED", 0), number("SEEDS", DEFAULT_SEEDS));
    let (next, sums) = (AtomicU64::new(first), Mutex::new(Sums::default()));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + seeds {
                return;
            }
            let plan = Plan::draw(seed);
            let report = world::run(&plan);
            let mut sums = sums.lock().expect("no panic");
            sums.seeds += 1;
            sums.hours += report.simulated.as_secs_f64() / 3_600.0;
            sums.callers += report.callers;
            for (kind, times) in &report.injected {
                *sums.injected.entry(kind.clone()).or_default() += times;
            }
            let Some(violation) = &report.violation else { continue };
            sums.violations += 1;
            println!("violation seed={seed} {violation}");
            if is_set("TIMELINE") {
                println!("{}", report.timeline);
            }
            if is_set("SHRINK") {
                print_shrunk(&plan, violation);
            }
            if is_set("STOP") {
                next.store(u64::MAX / 2, Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(run);
        }
    });
    let Sums { seeds, hours, callers, injected, violations } = sums.into_inner().expect("no panic");
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
fn seeds_that_broke_a_promise_keep_it() {
    for seed in MENDED.into_iter().chain(MENDED_LATER) {
        let Report { violation, .. } = world::run(&Plan::draw(seed));
        assert_eq!(violation, None, "seed {seed}");
    }
}

/// Prints the shortest history that breaks the same promise.
fn print_shrunk(plan: &Plan, violation: &str) {
    let promise = |violation: &str| violation.split(':').next().map(str::to_owned);
    let broken = promise(violation);
    let plan = plan.shrunk(|plan| {
        world::run(plan).violation.is_some_and(|violation| promise(&violation) == broken)
    });
    let report = world::run_and_tell(&plan, true);
    println!("{plan:#?}\n{}\n{:?}", report.timeline, report.violation);
}

/// Hash tables and channels draw an order of their own, which no seed sets. It shows where several
/// keys of a lease end at one instant, or several tasks of sentinels and clusters wait. The guards
/// of a process renew at common instants, which no world begins.
fn has_an_order_of_its_own(plan: &Plan) -> bool {
    let is_guarded = plan.asks.iter().any(|ask| matches!(ask.then, Then::Hold(_)));
    plan.stack.lease.is_some() || plan.topology != Topology::One || is_guarded
}

/// Lives until two lives are alike. Returns two that differ although the machine paused the thread
/// in neither: the crate also asks the runtime whether a turn of its thread took long, in real
/// time. `live` returns a life and its longest turn.
fn two_that_differ<T: PartialEq>(mut live: impl FnMut() -> (T, Duration)) -> Option<[T; 2]> {
    const MAX_PAUSED: usize = 100;
    let (mut unpaused, mut paused) = (None, Vec::new());
    while paused.len() < MAX_PAUSED {
        let (life, longest_turn) = live();
        if unpaused.as_ref() == Some(&life) || paused.contains(&life) {
            return None;
        }
        if longest_turn > SHORT_TURN {
            paused.push(life);
        } else if let Some(first) = unpaused.take() {
            return Some([first, life]);
        } else {
            unpaused = Some(life);
        }
    }
    panic!("nothing happens twice");
}

#[test]
fn a_seed_happens_again_in_the_same_way() {
    let plans = (0..40).map(|seed| (seed, Plan::draw(seed)));
    for (seed, plan) in plans.filter(|(_, plan)| !has_an_order_of_its_own(plan)).take(10) {
        let differing = two_that_differ(|| {
            let Report { timeline, longest_turn, .. } = world::run_and_tell(&plan, true);
            (timeline, longest_turn)
        });
        if let Some([first, second]) = differing {
            for (line, (one, other)) in first.lines().zip(second.lines()).enumerate() {
                assert_eq!(one, other, "seed {seed}, line {line}");
            }
            panic!("seed {seed}: one timeline is longer");
        }
    }
}
