//! The cost of each algorithm for the server: the memory of a key, and the time that its script
//! takes.
//!
//! Redis itself measures the time of EVALSHA, without sockets. It is divided by the decisions. Keys
//! come again before they are old, and every charge is admitted. The log is also measured with many
//! live members: when each charge finds one that has just become old, and when it is full, so that
//! each refusal searches for the member that must leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::algorithm::{
    Budget, Calendar, FixedWindow, InLua, IntoAlgorithm, SlidingLog, TokenBucket,
};
use tower_sluice::{Charge, Limiter, Quota, Redis};

use crate::measure::median_of;
use crate::site::{self, Site};
use support::algorithms::{Visit, each_algorithm};

const ROUNDS: usize = 7;
const KEYS: usize = 10_000;
const SINGLES: usize = 3_000;
const BATCHED: usize = 60_000;

/// Enough tasks that batches are full.
const TASKS: usize = 256;

pub(crate) fn run() {
    let site = Site::new();
    let quota = Quota::per_second(1_000);
    each_algorithm(quota, &mut Measure(&site));
    held_and_settled(&site, Budget::new(quota));
    measure(&site, "fixed_window_anchored", FixedWindow::new(quota).anchored());
    measure(&site, "fixed_window_day", FixedWindow::new(Quota::per_day(1_000_000)));
    let berlin = Calendar::day().time_zone("Europe/Berlin").expect("a zone");
    measure(&site, "calendar_day", FixedWindow::calendar(1_000_000, berlin));
    let bucket = || TokenBucket::new(quota);
    measure(&site, "2 token buckets", (bucket(), bucket()));
    measure(&site, "4 token buckets", (bucket(), bucket(), bucket(), bucket()));
    measure(
        &site,
        "8 token buckets",
        (bucket(), bucket(), bucket(), bucket(), bucket(), bucket(), bucket(), bucket()),
    );
    let short = log(&site, 10);
    let long = log(&site, 10_000);
    println!(
        "bench case=log_ratio of=10000 to=10 allow={:.2} deny={:.2}",
        long[0] / short[0],
        long[1] / short[1]
    );
}

struct Measure<'a>(&'a Site);

impl Visit for Measure<'_> {
    fn visit<A: InLua>(&mut self, algorithm: A) {
        measure(self.0, A::NAME, algorithm);
    }
}

fn measure<A: InLua>(site: &Site, name: &str, algorithm: impl IntoAlgorithm<Algorithm = A>) {
    site.flush();
    let limiter = site.limiter(algorithm);
    let empty = site.used_memory();
    site.charge_all(&limiter, 1);
    let held = (site.used_memory() - empty) / site::KEYS as f64;
    let [single, batched] = [(1, SINGLES), (TASKS, BATCHED)].map(|(tasks, decisions)| {
        median_of((0..ROUNDS).map(|_| charge(site, &limiter, tasks, decisions, KEYS)))
    });
    println!(
        "bench case=algorithm name={name} bytes={held:.0} single_us={single:.1} batched_us={batched:.2}"
    );
}

/// Charges that are held, each settled with all of its units: the time of both together.
fn held_and_settled(site: &Site, budget: Budget) {
    let limiter = site.limiter(budget);
    let both = |tasks, decisions| {
        let limiter = limiter.clone();
        scripted(site, decisions, move || {
            site.drive(tasks, decisions, KEYS, move |key| {
                let limiter = limiter.clone();
                async move {
                    let decision = limiter.check(&Charge::new(key)).await;
                    let reservation = decision.expect("a decision").take_reservation();
                    let settled = limiter.settle(reservation.expect("held"), 1);
                    settled.expect("its own").await.expect("settled");
                }
            });
        })
    };
    let [single, batched] = [(1, SINGLES), (TASKS, BATCHED)]
        .map(|(tasks, decisions)| median_of((0..ROUNDS).map(|_| both(tasks, decisions))));
    println!("bench case=settled name=budget single_us={single:.1} batched_us={batched:.2}");
}

/// A log of `members` live members on one key: the time of an admission and of a refusal. For long
/// logs it also prints the same with 64 in a call: a short one has no room for as many at once.
pub(crate) fn log(site: &Site, members: usize) -> [f64; 2] {
    const STEP: u64 = 1_000;
    /// In long logs some room is left, since all charges of a call come at one instant.
    const ROOM: usize = 2 * TASKS;
    site.flush();
    let is_long = members > 10 * ROOM;
    let steps = if is_long { members - ROOM } else { members };
    let quota = Quota::new(members as u64, Duration::from_micros(STEP * steps as u64));
    let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
    let clock = Arc::clone(&now);
    let limiter = site
        .limiter(SlidingLog::new(quota).max_limit(members as u64))
        .clock(move || Duration::from_micros(clock.load(Relaxed)));
    // Each charge comes when one before it has become old.
    let admit = |tasks, decisions| {
        let (limiter, now) = (limiter.clone(), Arc::clone(&now));
        scripted(site, decisions, move || {
            site.drive(tasks, decisions, 1, move |key| {
                now.fetch_add(STEP, Relaxed);
                let asked = limiter.check(&Charge::new(key));
                async move {
                    let is_admitted = asked.await.expect("a decision").is_admitted();
                    // Calls over two connections may overtake each other, against their clock.
                    assert!(is_admitted || tasks > 1);
                }
            });
        })
    };
    admit(1, 2 * members);
    let bytes = site.weight_of_all();
    let allow = median_of((0..ROUNDS).map(|_| admit(1, SINGLES)));
    let allow_batched = is_long.then(|| median_of((0..ROUNDS).map(|_| admit(TASKS, BATCHED))));
    charge(site, &limiter, TASKS, 2 * ROOM, 1);
    let deny = median_of((0..ROUNDS).map(|_| charge(site, &limiter, 1, SINGLES, 1)));
    print!(
        "bench case=log members={members} bytes={bytes:.0} allow_us={allow:.1} deny_us={deny:.1}"
    );
    if let Some(allow) = allow_batched {
        let deny = median_of((0..ROUNDS).map(|_| charge(site, &limiter, TASKS, BATCHED, 1)));
        print!(" batched_allow_us={allow:.2} batched_deny_us={deny:.2}");
    }
    println!();
    [allow, deny]
}

/// Charges of one unit each, and the time in the script for each of them.
fn charge<A: InLua>(
    site: &Site,
    limiter: &Redis<A>,
    tasks: usize,
    decisions: usize,
    keys: usize,
) -> f64 {
    scripted(site, decisions, || _ = site.charge(limiter, tasks, decisions, keys))
}

/// The time that scripts take for each decision of `work`.
fn scripted(site: &Site, decisions: usize, work: impl FnOnce()) -> f64 {
    let before = site.time_in("evalsha");
    work();
    (site.time_in("evalsha") - before) / decisions as f64
}
