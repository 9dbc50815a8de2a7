//! 64 tasks of four processes hold units of one key: for a moment, or longer than `max_hold` by a
//! guard. Some wait, some hang up while they wait, and two processes are killed.
//!
//! Never are more units held than the limit, by what the tasks say. What the killed held is free
//! again in time.

use std::collections::BTreeMap;
use std::thread;

use crate::*;

use support::process::{Process, of_this_binary, told};
use tower_sluice::Pool;

const PROCESSES: usize = 4;
const TASKS: u64 = 16;

/// A task holds units as often, however slow the machine is.
const LEAST: u32 = 4;

/// The clock of the server, which runs on the same machine.
fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 586,000")
}

/// Starts a process that holds and releases for so long.
fn start(units: u64, max_hold: Duration, seconds: u64, url: &str) -> Process {
    let mut command = of_this_binary("concurrency::storm::process");
    let command = command.env("HOLDS_URL", url).env("HOLDS_UNITS", units.to_string());
    let command = command.env("HOLDS_MILLIS", max_hold.as_millis().to_string());
    Process::start(command.env("HOLDS_SECONDS", seconds.to_string())).expect("a process")
}

#[tokio::test]
#[ignore = "the processes of other tests run it"]
async fn process() {
    let Ok(url) = std::env::var("HOLDS_URL") else { return };
    let number =
        |name: &str| -> u64 { std::env::var(name).expect("a variable").parse().expect("a number") };
    let max_hold = Duration::from_millis(number("HOLDS_MILLIS"));
    let pool = Pool::builder(&url).expect("an address");
    let pool = pool.connect_timeout(LONG).response_timeout(LONG).build().expect("a pool");
    let limit = Concurrency::new(number("HOLDS_UNITS")).max_hold(max_hold);
    let limiter = Redis::new("at once", limit, pool).decision_timeout(LONG);
    work(limiter, max_hold, Duration::from_secs(number("HOLDS_SECONDS"))).await;
}

/// Holds and releases, until the time is over.
async fn work(limiter: Redis<Concurrency>, max_hold: Duration, time: Duration) {
    println!("ready");
    told().await;
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let seed = u64::from(std::process::id()) << 8 | number;
        tasks.spawn(task(limiter.clone(), fastrand::Rng::with_seed(seed), max_hold, end));
    }
    tasks.join_all().await;
    // Guards that were dropped release on their way. This asks behind them.
    let _ = limiter.peek("all").await.expect("a peek");
    println!("done");
    // What waiters who left held is released by the runtime.
    told().await;
}

async fn task(
    limiter: Redis<Concurrency>,
    mut dice: fastrand::Rng,
    max_hold: Duration,
    end: Instant,
) {
    let mut count = 0;
    while Instant::now() < end || count < LEAST {
        let cost = dice.u64(1..=4);
        let wait = Duration::from_millis([0, 50, 1_000][dice.usize(..3)]);
        let charge = Charge::new("all").cost(cost).max_wait(wait);
        let patience = Duration::from_micros(dice.u64(..2_000_000));
        let acquired = tokio::time::timeout(patience, limiter.acquire(charge)).await;
        let Ok(Ok(mut decision)) = acquired else {
            tokio::time::sleep(Duration::from_micros(dice.u64(..5_000))).await;
            continue;
        };
        let (number, asked) = (dice.u64(..), decision.decided_at().expect("known").as_micros());
        println!("holds {number} {cost} {asked} {}", now());
        let reservation = decision.take_reservation().expect("held");
        if dice.u32(0..8) == 0 {
            let hold = limiter.hold(reservation);
            tokio::time::sleep(max_hold.mul_f64(1.0 + dice.f64())).await;
            println!("releases {number} {}", now());
            drop(hold);
        } else {
            tokio::time::sleep(Duration::from_micros(dice.u64(..5_000))).await;
            println!("releases {number} {}", now());
            let released = limiter.settle(reservation, 0).expect("its own").await;
            println!("released {}", released.is_ok_and(|released| released.given_back == cost));
        }
        count += 1;
    }
}

/// Units that are held from one instant to another.
struct Held {
    units: i64,
    from: u64,
    until: Option<u64>,
}

/// The holds that a process tells.
fn holds(said: &[String]) -> Vec<Held> {
    let mut all = BTreeMap::new();
    for line in said {
        let mut words = line.split(' ');
        let what = words.next();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match (what, &numbers[..]) {
            (Some("holds"), [number, units, _, from]) => {
                let units = i64::try_from(*units).expect("few");
                all.insert(*number, Held { units, from: *from, until: None });
            }
            (Some("releases"), [number, at]) => {
                all.get_mut(number).expect("it is held").until = Some(*at);
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

/// The most units that are held at an instant.
fn most_at_once(holds: &[Held], max_hold: u64) -> i64 {
    let until = |held: &Held| held.until.unwrap_or(held.from + max_hold / 2);
    let changes =
        holds.iter().flat_map(|held| [(held.from, held.units), (until(held), -held.units)]);
    let mut changes: Vec<_> = changes.collect();
    changes.sort_unstable();
    let sums = changes.iter().scan(0, |held, (_, units)| {
        *held += units;
        Some(*held)
    });
    sums.max().unwrap_or(0)
}

async fn never_more_than_the_limit(seconds: u64) {
    const LIMIT: u64 = 24;
    let server = Server::start();
    // A hold of a process that is slow must not end before it is renewed.
    let max_hold = 3 * SECOND;
    let limiter = Redis::new("at once", Concurrency::new(LIMIT).max_hold(max_hold), server.pool());
    let limiter = limiter.decision_timeout(LONG);
    let mut processes: Vec<_> =
        (0..PROCESSES).map(|_| start(LIMIT, max_hold, seconds, &server.url())).collect();
    processes.iter().for_each(|process| _ = process.says("ready").expect("it runs"));
    processes.iter_mut().for_each(|process| process.tell("go"));
    thread::sleep(Duration::from_millis(500 * seconds));
    processes.iter_mut().take(2).for_each(Process::kill);
    let killed_at = now();
    let said: Vec<_> = processes.iter().map(|process| process.lines_until("done")).collect();
    let lost = said.iter().flatten().filter(|line| *line == "released false").count();
    let holds: Vec<_> = said.iter().flat_map(|lines| holds(lines)).collect();
    let open = holds.iter().filter(|held| held.until.is_none()).count();
    let most = most_at_once(&holds, u64::try_from(max_hold.as_micros()).expect("short"));
    println!("concurrency holds={} open={open} lost={lost} most={most} limit={LIMIT}", holds.len());
    assert!(holds.len() > 64, "{}", holds.len());
    assert!(most <= i64::try_from(LIMIT).expect("few"), "{most}");
    assert_eq!(lost, 0, "nobody held units longer than their time");
    // The survivors have ended. The time of what the killed held ends in 1.5 times `max_hold`.
    let all_free_at = now().max(killed_at + 4_500_000);
    let is_free = async || {
        let peek = limiter.peek("all").await.expect("a peek");
        let is_late = peek.decided_at().expect("known").as_micros() >= u128::from(all_free_at);
        assert!(!is_late || peek.remaining() == Some(LIMIT), "{peek:?}");
        peek.remaining() == Some(LIMIT)
    };
    eventually("all is free again", is_free).await;
    drop(processes);
}

// Case 180.
#[tokio::test]
async fn in_a_storm_with_kills_the_limit_holds() {
    never_more_than_the_limit(2).await;
}

#[tokio::test]
#[ignore = "a minute: CONTRIBUTING.md"]
async fn a_storm_of_a_minute() {
    never_more_than_the_limit(60).await;
}
