//! Both sides call one limiter without pause, and an observer reads its keys: no window holds more
//! than the rate, and little of it is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tower_sluice_redisson::{Rate, RateType};

use crate::Both;

/// The time for which both sides call one limiter.
pub(crate) fn seconds() -> Duration {
    let seconds =
        std::env::var("INTEROP_SECONDS").map_or(10, |text| text.parse().expect("seconds"));
    Duration::from_secs(seconds)
}

/// The least number of ms by which Java's clock is ahead of the server's; negative if behind.
async fn clock_difference(both: &mut Both) -> i64 {
    let mut least = i64::MAX;
    for _ in 0..20 {
        let before = time(&mut both.connection).await;
        let java: i64 = both.java.ask("clock").parse().expect("a time");
        let after = time(&mut both.connection).await;
        let ahead = java - java.clamp(before, after);
        least = if ahead.abs() < least.abs() { ahead } else { least };
    }
    least
}

async fn time(connection: &mut MultiplexedConnection) -> i64 {
    let (seconds, micros): (i64, i64) =
        cmd("TIME").query_async(connection).await.expect("the time");
    seconds * 1_000 + micros / 1_000
}

const THREADS: usize = 4;
const RATE: usize = 1_000;
const INTERVAL: u64 = 1_000;

/// The grants that the observer saw in the limiter's set of permits.
///
/// Java stamps a grant before it sends the call, so its stored time lies before the server's. The
/// windows that are judged are shorter than an interval by this difference.
#[derive(Default)]
struct Seen {
    /// The time of each grant in ms, by its member.
    grants: HashMap<Vec<u8>, u64>,
    /// The most ms by which a grant's time lay before the server's when the grant was first seen.
    lag: u64,
}

/// Reads the stored grants until `stop` is set: each grant stays for an interval.
async fn look_on(mut connection: MultiplexedConnection, stop: Arc<AtomicBool>) -> Seen {
    let script = "local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        return { now, redis.call('ZRANGEBYSCORE', KEYS[1], now - 400, '+inf', 'WITHSCORES') }";
    let mut seen = Seen::default();
    loop {
        let last = stop.load(Relaxed);
        let mut look = cmd("EVAL");
        look.arg(script).arg(1).arg("{hammered}:permits");
        let (now, members): (u64, Vec<(Vec<u8>, u64)>) =
            look.query_async(&mut connection).await.expect("members");
        for (member, at) in members {
            let lag = now.saturating_sub(at);
            if seen.grants.insert(member, at).is_none() {
                seen.lag = seen.lag.max(lag);
            }
        }
        if last {
            return seen;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// The most grants in any stretch of `length` ms.
fn worst_window_of(sorted: &[u64], length: u64) -> usize {
    let mut oldest = 0;
    let inside = |(place, at): (usize, &u64)| {
        while sorted[oldest] + length <= *at {
            oldest += 1;
        }
        place + 1 - oldest
    };
    sorted.iter().enumerate().map(inside).max().unwrap_or(0)
}

pub(crate) async fn both_hammer_one_limiter(mut both: Both) {
    let length = seconds();
    both.name("hammered");
    let rate = Rate::overall(RATE as u64, Duration::from_millis(INTERVAL));
    assert!(both.limiter.try_set_rate(rate).await.unwrap());
    assert_eq!(both.limiter.config().await.unwrap().unwrap().rate_type(), RateType::Overall);

    let clock = clock_difference(&mut both).await;
    let stop = Arc::new(AtomicBool::new(false));
    let looking = tokio::spawn(look_on(both.server.connection().await, Arc::clone(&stop)));
    let (limiter, calls) = (both.limiter.clone(), Arc::new(AtomicU64::new(0)));
    let mut java = both.java;
    let java =
        spawn_blocking(move || java.ask(&format!("hammer {THREADS} {}", length.as_millis())));
    let until = Instant::now() + length;
    let mut tasks = JoinSet::new();
    for _ in 0..THREADS {
        let (limiter, calls) = (limiter.clone(), Arc::clone(&calls));
        tasks.spawn(async move {
            let mut admitted = 0_u64;
            while Instant::now() < until {
                calls.fetch_add(1, Relaxed);
                admitted += u64::from(limiter.try_acquire(1).await.expect("an answer").is_some());
            }
            admitted
        });
    }
    let rust: u64 = tasks.join_all().await.iter().sum();
    let answer = java.await.expect("an answer");
    stop.store(true, Relaxed);
    let seen = looking.await.expect("seen");

    let (java, java_calls) = answer.split_once(' ').expect("two numbers");
    let java: u64 = java.parse().expect("a number");
    let mut times: Vec<u64> = seen.grants.into_values().collect();
    times.sort_unstable();
    assert_eq!(
        times.len() as u64,
        java + rust,
        "every grant is stored, and every stored one was told"
    );
    let difference = clock.unsigned_abs() + seen.lag;
    let worst_window = worst_window_of(&times, INTERVAL.saturating_sub(difference));
    let worst_interval = worst_window_of(&times, INTERVAL);
    let utilisation =
        (java + rust) as f64 / (RATE as f64 * length.as_millis() as f64 / INTERVAL as f64);
    println!(
        "interop java={java} rust={rust} worst_window={worst_window} rate={RATE} \
         utilisation={utilisation:.3} clock_ms={clock} lag_ms={} worst_interval={worst_interval} java_calls={java_calls} \
         rust_calls={}",
        seen.lag,
        calls.load(Relaxed),
    );
    assert!(worst_window <= RATE, "over the rate");
    // A call of Java that was on its way when permits came free brings a time of before then.
    assert!(worst_interval <= RATE + THREADS, "over the rate by more than what was on its way");
    assert!(utilisation >= 0.95, "too little is admitted");
    assert!(java > 0 && rust > 0, "one side got nothing");
}
