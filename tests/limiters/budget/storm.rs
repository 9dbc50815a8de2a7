//! 64 tasks of four processes hold random estimates and settle random uses. Some hang up while they
//! wait, and some processes are killed.
//!
//! Nothing that was settled goes over the bound in any stretch, and no unit is lost but what a
//! killed process held, which comes back in time.

use std::thread;

use super::process::{Process, Role};

use crate::*;

const PROCESSES: usize = 4;
const TASKS: u64 = 16;

/// A task settles as many, however slow the machine is.
const LEAST: u32 = 4;

/// The clock of the server, which runs on the same machine.
fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 586,000")
}

/// A settlement: the units that were used, and between which instants it was made.
#[derive(Clone, Copy, Debug)]
struct Settled {
    used: u64,
    sent: u64,
    received: u64,
}

impl Settled {
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.strip_prefix("settled ")?.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { used: next()?, sent: next()?, received: next()? })
    }
}

/// Holds and settles, until the time is over and all is settled.
pub(crate) async fn work(limiter: Redis<Budget>, time: Duration) {
    println!("ready");
    Process::told().await;
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let seed = u64::from(std::process::id()) << 8 | number;
        tasks.spawn(task(limiter.clone(), fastrand::Rng::with_seed(seed), end));
    }
    tasks.join_all().await;
    println!("done");
    // What waiters who left held is settled by the runtime.
    Process::told().await;
}

async fn task(limiter: Redis<Budget>, mut dice: fastrand::Rng, end: Instant) {
    let mut count = 0;
    while Instant::now() < end || count < LEAST {
        let cost = dice.u64(1..=200);
        let charge = Charge::new("all").cost(cost).max_wait(Duration::from_millis(dice.u64(..50)));
        let patience = Duration::from_micros(dice.u64(..100_000));
        let acquired = tokio::time::timeout(patience, limiter.acquire(charge)).await;
        let Ok(Ok(mut decision)) = acquired else {
            tokio::time::sleep(Duration::from_micros(dice.u64(..2_000))).await;
            continue;
        };
        tokio::time::sleep(Duration::from_micros(dice.u64(..5_000))).await;
        let reservation = decision.take_reservation().expect("held");
        let (used, sent) = ([cost, 0, dice.u64(..=cost)][dice.usize(..3)], now());
        let settled = limiter.settle(reservation, used).expect("its own").await;
        if settled.is_ok_and(|settled| settled.given_back == cost - used) {
            println!("settled {used} {sent} {}", now());
            count += 1;
        } else {
            println!("lost {used}");
        }
    }
}

/// Runs all processes for a time, and kills as many in its middle. Returns what was settled, the
/// units of settlements that found nothing, and when the last process was killed.
fn run(role: &Role, url: &str, kills: usize) -> (Vec<Settled>, u64, u64, Vec<Process>) {
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(role, url)).collect();
    processes.iter_mut().for_each(|process| process.says("ready"));
    let read = |process: &mut Process| {
        let lines = process.lines();
        thread::spawn(move || {
            let said = lines.map_while(Result::ok).take_while(|line| line != "done");
            said.collect::<Vec<_>>()
        })
    };
    let readers: Vec<_> = processes.iter_mut().map(read).collect();
    processes.iter_mut().for_each(Process::tell);
    if kills > 0 {
        thread::sleep(Duration::from_millis(500 * role.seconds));
        processes.iter_mut().take(kills).for_each(Process::kill);
    }
    let killed_at = now();
    let said: Vec<_> = readers.into_iter().flat_map(|one| one.join().expect("read")).collect();
    let lost = said.iter().filter_map(|line| line.strip_prefix("lost ")?.parse::<u64>().ok()).sum();
    (said.iter().filter_map(|line| Settled::read(line)).collect(), lost, killed_at, processes)
}

/// The most by which what was settled in a stretch exceeds the bound. A settlement is in a stretch
/// if it was sent and answered in it.
fn most_over(settled: &mut [Settled], quota: Quota) -> i128 {
    let (limit, period) = (i128::from(quota.limit()), quota.period().as_micros() as i128);
    settled.sort_unstable_by_key(|one| one.received);
    let mut most = i128::MIN;
    for first in settled.iter() {
        let mut used = 0;
        for one in settled.iter().filter(|one| one.sent >= first.sent) {
            used += i128::from(one.used);
            let stretch = i128::from(one.received - first.sent);
            most =
                most.max(used * period - i128::from(quota.burst_size()) * period - stretch * limit);
        }
    }
    most
}

fn over(server: &Server, role: &Role) -> Redis<Budget> {
    let budget = Budget::new(role.quota).max_hold(role.max_hold);
    Redis::new("tokens", budget, server.pool()).decision_timeout(LONG)
}

/// So slowly does it refill, and so much is owed before, that every unit can be counted.
async fn no_unit_is_lost(seconds: u64) {
    const OWED: u64 = 1_000_000;
    let server = Server::start();
    let (quota, max_hold) = (Quota::per_day(864_000_000), Duration::from_secs(60));
    let role = Role { name: "storm", quota, max_hold, seconds };
    let limiter = over(&server, &role);
    let begun = limiter.penalize(Charge::new("all").cost(OWED)).await.expect("a penalty");
    let (settled, lost, _, processes) = run(&role, &server.url(), 0);
    assert_eq!(lost, 0);
    let used: u64 = settled.iter().map(|one| one.used).sum();
    println!("budget settlements={} used={used}", settled.len());
    assert!(settled.len() > 64 && used > 0);
    // Those who left are settled a little later.
    let all_is_back = async || {
        let peek = limiter.peek("all").await.expect("a peek");
        let time = peek.decided_at().expect("known") - begun.decided_at().expect("known");
        let refilled = time.as_micros() * u128::from(quota.limit()) / quota.period().as_micros();
        assert!(refilled < u128::from(OWED + used), "it was full at times");
        let left = u128::from(quota.burst_size() - OWED - used) + refilled;
        u128::from(peek.remaining().expect("reported")) == left
    };
    eventually("all that was not used is free", all_is_back).await;
    drop(processes);
}

/// A quota that is always short, and holds of a second.
async fn the_bound_holds_and_what_the_killed_held_comes_back(seconds: u64) {
    let server = Server::start();
    let (quota, max_hold) = (Quota::per_second(3_000), Duration::from_secs(1));
    let role = Role { name: "storm", quota, max_hold, seconds };
    let limiter = over(&server, &role);
    let (mut settled, lost, killed_at, processes) = run(&role, &server.url(), 2);
    let used: u64 = settled.iter().map(|one| one.used).sum();
    let over = most_over(&mut settled, quota);
    let near = -over / quota.period().as_micros() as i128;
    println!("budget settlements={} used={used} lost={lost} below={near}", settled.len());
    assert!(settled.len() > 64, "{}", settled.len());
    assert!(over <= 0, "{over}");
    // The survivors have ended, and the time of every hold is over: two eras, and a second to
    // refill what counts as spent.
    let full_at = now().max(killed_at) + 3_000_000;
    let is_full = async || {
        let peek = limiter.peek("all").await.expect("a peek");
        let is_late = peek.decided_at().expect("known").as_micros() >= u128::from(full_at);
        assert!(!is_late || peek.remaining() == Some(3_000), "{peek:?}");
        is_late
    };
    eventually("it is full again", is_full).await;
    drop(processes);
}

#[tokio::test]
async fn in_a_storm_no_unit_is_lost() {
    no_unit_is_lost(1).await;
}

#[tokio::test]
async fn in_a_storm_with_kills_the_bound_holds() {
    the_bound_holds_and_what_the_killed_held_comes_back(2).await;
}

#[tokio::test]
#[ignore = "two minutes: CONTRIBUTING.md"]
async fn storms_of_a_minute() {
    no_unit_is_lost(60).await;
    the_bound_holds_and_what_the_killed_held_comes_back(60).await;
}
