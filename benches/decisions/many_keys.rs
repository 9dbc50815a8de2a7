//! The cost of a decision in this process where ten million keys are live and two threads ask.

use std::fmt::Write as _;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use tower_sluice::algorithm::Algorithm;
use tower_sluice::{Charge, Limiter, Memory};

use crate::in_process::{BUCKET, WINDOW, now};
use crate::measure::median_of;

const KEYS: u64 = 10_000_000;
const THREADS: u64 = 2;
const CALLS: u64 = 1_000_000;
const ROUNDS: u64 = 5;

/// Prints a line for each case.
pub(crate) fn run() {
    measure("key", |key| drop(black_box(Charge::new(key))));
    measure("memory", memory(BUCKET));
    measure("memory_fixed_window", memory(WINDOW));
}

fn memory<A: Algorithm>(algorithm: A) -> impl Fn(&str) + Sync {
    let limiter = Memory::new("memory", algorithm).max_keys(2 * KEYS as usize);
    move |key| {
        let decision = now(limiter.check(&Charge::new(key))).expect("a decision");
        assert!(black_box(decision).is_admitted());
    }
}

/// Asks about every key once, and then about random ones. Prints how long a thread takes for one
/// decision, and how long the slowest took while the keys came. Also how many bytes a key takes:
/// those asked of the allocator, and those resident.
pub(crate) fn measure(case: &str, ask: impl Fn(&str) + Sync) {
    let resident_before = resident();
    let mut slowest = Duration::ZERO;
    let allocated = allocation_counter::measure(|| {
        let mut key = String::new();
        for number in 0..KEYS {
            let key = name(&mut key, number);
            let begun = Instant::now();
            ask(key);
            slowest = slowest.max(begun.elapsed());
        }
    });
    let per_key = |bytes: f64| bytes / KEYS as f64;
    let rounds = (0..ROUNDS).map(|round| two_threads(round, &ask));
    println!(
        "bench case={case} keys={KEYS} threads={THREADS} ns={:.1} slowest_us={} bytes={:.0} \
         resident={:.0}",
        median_of(rounds),
        slowest.as_micros(),
        per_key(allocated.bytes_current as f64),
        per_key(resident() - resident_before),
    );
}

/// Returns the time that a thread takes for one call while the others call too, in ns.
fn two_threads(round: u64, ask: &(impl Fn(&str) + Sync)) -> f64 {
    let begun = Instant::now();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut key = String::new();
                let mut dice = fastrand::Rng::with_seed(round * THREADS + thread);
                for _ in 0..CALLS {
                    ask(name(&mut key, dice.u64(0..KEYS)));
                }
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Writes the key of a number.
fn name(key: &mut String, number: u64) -> &str {
    key.clear();
    write!(key, "user-{number:08}").expect("a string takes all");
    key
}

/// The memory of this process, in bytes.
fn resident() -> f64 {
    support::process::memory(std::process::id()) as f64
}
