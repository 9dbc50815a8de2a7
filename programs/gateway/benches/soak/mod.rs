//! A long run: half of the requests that the gateway can answer, while its table changes each
//! minute. Ends with an error if a request fails, a limit is passed, or the gateway grows.
//!
//! Requests are due at fixed times, whether or not earlier ones were answered. Their times count
//! from when they are due.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::faults::size;
use support::process::{memory, open_files};
use support::{Server, until};

use crate::common::Gateway;
use crate::common::client::Connection;
use crate::common::upstream::Upstream;

const CALLERS: usize = 32;

const KEYS: u64 = 64;

/// The seconds of a window, which begins at a multiple of them.
const WINDOW: u64 = 10;

/// A request that is sent later than this after it was due has fallen behind.
const BEHIND: Duration = Duration::from_millis(10);

/// A caller whose requests fail so often gives up.
const MOST_FAILED: u64 = 10;

/// The most that the gateway may grow after its first seconds.
const MOST_BYTES: u64 = 8 << 20;
const MOST_FILES: usize = 16;

/// The width of a bucket of the times, and their number.
const BUCKET: Duration = Duration::from_micros(10);
const BUCKETS: usize = 200_000;

fn table(limit: u64) -> String {
    format!(
        "[[policy]]\nname = \"api\"\nalgorithm = \"fixed_window\"\nlimit = {limit}\n\
         period = \"{WINDOW}s\"\nkey = \"header:x-api-key\"\n"
    )
}

/// The time since the Unix epoch, by the clock that Redis reads too.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// The answers that some requests had.
struct Counts {
    statuses: BTreeMap<u16, u64>,
    failed: u64,
    behind: u64,
    /// The number of requests in each bucket of the times.
    times: Vec<u64>,
    /// By key and window: those that were admitted, and certainly in that window.
    admitted: BTreeMap<(u64, u64), u64>,
}

impl Counts {
    fn new() -> Self {
        let (statuses, admitted) = (BTreeMap::new(), BTreeMap::new());
        Self { statuses, failed: 0, behind: 0, times: vec![0; BUCKETS], admitted }
    }

    fn add(&mut self, other: Self) {
        (self.failed, self.behind) = (self.failed + other.failed, self.behind + other.behind);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (place, count) in other.admitted {
            *self.admitted.entry(place).or_default() += count;
        }
        self.times.iter_mut().zip(other.times).for_each(|(own, other)| *own += other);
    }

    fn of(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or_default()
    }

    fn requests(&self) -> u64 {
        self.statuses.values().sum::<u64>() + self.failed
    }

    /// The time within which this share of the requests was answered.
    fn time(&self, share: f64) -> Duration {
        let most = (self.requests() as f64 * share) as u64;
        let mut sum = 0;
        let slower = self.times.iter().take_while(|count| {
            sum += **count;
            sum < most
        });
        BUCKET * slower.count() as u32
    }
}

/// Asks from many callers at once until `end`: at this rate a second, or else as fast as answers
/// come.
fn ask(gateway: &Gateway, rate: Option<u64>, end: Instant) -> Counts {
    let (begun, next) = (Instant::now(), AtomicU64::new(0));
    let caller = || {
        let mut counts = Counts::new();
        let mut connection = None;
        while counts.failed < MOST_FAILED {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let due = match rate {
                Some(rate) => begun + Duration::from_nanos(number * 1_000_000_000 / rate),
                None => Instant::now(),
            };
            if due > end {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            counts.behind += u64::from(due.elapsed() > BEHIND);
            let (key, sent) = (number % KEYS, now().as_secs() / WINDOW);
            // A connection that fails panics.
            let asked = catch_unwind(AssertUnwindSafe(|| {
                let connection = connection.get_or_insert_with(|| Connection::open(gateway.listen));
                connection.request("GET", "/", &[("x-api-key", &key.to_string())], b"").status
            }));
            let Ok(status) = asked else {
                counts.failed += 1;
                connection = None;
                continue;
            };
            *counts.statuses.entry(status).or_default() += 1;
            let bucket = due.elapsed().as_micros() / BUCKET.as_micros();
            counts.times[(bucket as usize).min(BUCKETS - 1)] += 1;
            if status == 200 && sent == now().as_secs() / WINDOW {
                *counts.admitted.entry((key, sent)).or_default() += 1;
            }
        }
        counts
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        let mut counts = Counts::new();
        callers.into_iter().for_each(|caller| counts.add(caller.join().expect("a caller")));
        counts
    })
}

/// A limit, when it was written, and when it was seen to be in force.
struct Limit {
    limit: u64,
    from: Duration,
    seen: Duration,
}

/// Puts another limit into force, and waits until it is.
fn reload(gateway: &Gateway, limit: u64, in_place: bool) -> Limit {
    let from = now();
    match in_place {
        true => gateway.rewrite(&table(limit)),
        false => gateway.replace(&table(limit)),
    }
    until("the new limit", || {
        gateway.admin("GET", "/policies", "").json()["policies"][0]["limit"] == limit
    });
    let health = gateway.health();
    assert!(health.status == 200 && health.text().starts_with("ok\n"), "{health:?}");
    Limit { limit, from, seen: now() }
}

/// The most that a window may admit of a key: the largest limit that may be in force in it. A limit
/// is out of force a second after another one was seen.
fn most(limits: &[Limit], window: u64) -> u64 {
    let (begin, end) = (window * WINDOW, (window + 1) * WINDOW);
    let ends = limits[1..].iter().map(|next| next.seen.as_secs() + 2).chain([u64::MAX]);
    let within = limits
        .iter()
        .zip(ends)
        .filter(|(limit, until)| limit.from.as_secs() < end && *until > begin);
    within.map(|(limit, _)| limit.limit).max().expect("a limit")
}

pub(crate) fn soak() {
    let seconds = size("SOAK_SECONDS", 3_600);
    let (upstream, redis) = (Upstream::keeping_alive(), Server::start());
    let variables = [("UPSTREAM", &*upstream.url()), ("REDIS_URL", &*redis.url())];
    let gateway = Gateway::start(&table(1_000_000), &variables);

    let measured = Duration::from_secs(5);
    let all = ask(&gateway, None, Instant::now() + measured);
    let throughput = all.of(200) / measured.as_secs();
    let rate = (throughput / 2).max(1);
    println!("soak throughput={throughput} rate={rate} seconds={seconds} callers={CALLERS}");

    // Of the requests of a key, a half and three quarters are admitted in turn.
    let share = rate * WINDOW / KEYS;
    let limit = |number: u64| share / 2 + number % 2 * share / 4 + number;
    let mut limits = vec![reload(&gateway, limit(0), true)];
    // By then the limit of the measurement above is out of force.
    std::thread::sleep(Duration::from_secs(2));

    let id = gateway.process.id();
    let (begun, each) = (Instant::now(), Duration::from_secs((seconds / 4).clamp(1, 60)));
    let end = begun + Duration::from_secs(seconds);
    let mut held = Vec::new();
    let counts = std::thread::scope(|scope| {
        let gateway = &gateway;
        let asking = scope.spawn(move || ask(gateway, Some(rate), end));
        for number in 1.. {
            let at = begun + each * number;
            if at >= end {
                break;
            }
            std::thread::sleep(at - Instant::now());
            limits.push(reload(gateway, limit(number.into()), number % 2 == 0));
            held.push((memory(id), open_files(id)));
        }
        // While all connections are open.
        std::thread::sleep(end - Duration::from_millis(500) - Instant::now());
        held.push((memory(id), open_files(id)));
        asking.join().expect("callers")
    });

    let slowest = limits.iter().map(|limit| limit.seen - limit.from).max().expect("a limit");
    let most = |((_, window), count): (&(u64, u64), &u64)| (most(&limits, *window), *count);
    let over: u64 = counts.admitted.iter().map(most).map(|(most, n)| n.saturating_sub(most)).sum();
    let full = counts.admitted.iter().map(most).filter(|(most, n)| n >= most).count();
    let [first, middle, last] = [0, held.len() / 2, held.len() - 1].map(|place| held[place]);
    println!(
        "soak requests={} statuses={:?} failed={} behind={} p50={:?} p99={:?}",
        counts.requests(),
        counts.statuses,
        counts.failed,
        counts.behind,
        counts.time(0.5),
        counts.time(0.99),
    );
    println!(
        "soak reloads={} slowest_reload={slowest:?} over={over} windows={} full_windows={full}",
        limits.len() - 1,
        counts.admitted.len(),
    );
    println!(
        "soak memory_kib={:?} open_files={:?} at its begin, middle and end",
        [first.0 >> 10, middle.0 >> 10, last.0 >> 10],
        [first.1, middle.1, last.1],
    );
    let decided = counts.of(200) + counts.of(429);
    assert_eq!(decided, counts.requests(), "requests failed");
    assert_eq!(over, 0, "admitted over the limit");
    assert!(full > 0, "no limit was met: let it run for longer");
    assert!(last.0 <= first.0 + MOST_BYTES, "memory grows");
    assert!(last.1 <= first.1 + MOST_FILES, "open files grow");
}
