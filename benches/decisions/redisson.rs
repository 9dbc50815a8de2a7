//! The time that Redisson's script holds the server where a limiter has 100,000 live permits, each
//! a member of its own.
//!
//! The time is Redis' own account of each call, from its slow log. What is asked is the
//! dearest of its kind.

use std::future::Future;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tower_sluice::{Charge, Limiter, Pool};
use tower_sluice_redisson::{RRateLimiter, Rate, Redisson};

use crate::site::Site;

const MEMBERS: u64 = 100_000;
const INTERVAL: Duration = Duration::from_secs(60);
const NOW: u64 = 1_767_225_600_000;
const ROUNDS: usize = 9;

/// A line of the slow log: its number, when, how long in µs, the command, and by whom.
type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);

/// The place of the members, in ms before now, and the value.
struct State {
    age: u64,
    value: Option<i64>,
}

const FULL: State = State { age: 0, value: Some(0) };

pub(crate) fn run() {
    let site = Site::new();
    let pool = Pool::connect(&site.server.url()).expect("an address");
    let redisson = Redisson::new(pool)
        .decision_timeout(Duration::from_secs(60))
        .clock(|| Duration::from_millis(NOW));
    let limiter = redisson.rate_limiter("bench").expect("a name");
    let bench = Bench { site: &site, limiter: &limiter };
    let take = async |permits: u64| {
        let charge = Charge::new("bench").cost(permits);
        drop(redisson.check(&charge).await.expect("a decision"));
    };
    let expired = || State { age: 60_000, value: Some(0) };
    let room = || State { age: 0, value: Some(10) };
    let weight = bench.weight();
    println!("bench case=redisson_memory members={MEMBERS} bytes_each={weight:.0}");
    bench.case("grant", room(), async || take(1).await);
    bench.case("refuse_1", FULL, async || take(1).await);
    bench.case("refuse_half", FULL, async || take(MEMBERS / 2).await);
    bench.case("expire_and_grant", expired(), async || take(1).await);
    bench.case("expire_and_refuse_all", expired(), async || take(MEMBERS).await);
    bench.case("available", expired(), async || take(0).await);
    bench.case("release_all", FULL, async || {
        assert_eq!(limiter.release(MEMBERS).await.expect("released"), MEMBERS);
    });
    bench.case("delete", FULL, async || assert!(limiter.delete().await.expect("deleted")));
    bench.case("value_lost", State { age: 0, value: None }, async || take(1).await);
    bench.case("update_keeping_state", FULL, async || {
        let rate = Rate::overall(MEMBERS + 1, INTERVAL);
        assert!(limiter.update_rate_keeping_state(rate).await.expect("updated"));
    });
}

struct Bench<'a> {
    site: &'a Site,
    limiter: &'a RRateLimiter,
}

impl Bench<'_> {
    /// Prints how long the script ran at the longest, in the middle one of the rounds
    /// and in the worst.
    fn case<F: Future<Output = ()>>(&self, name: &str, state: State, ask: impl Fn() -> F) {
        let mut longest: Vec<u64> = (0..ROUNDS).map(|_| self.round(&state, &ask)).collect();
        longest.sort_unstable();
        println!(
            "bench case=redisson_{name} members={MEMBERS} script_us={} worst_us={}",
            longest[ROUNDS / 2],
            longest[ROUNDS - 1]
        );
    }

    /// The bytes of one member.
    fn weight(&self) -> f64 {
        self.site.flush();
        self.site.runtime.block_on(async {
            fill(&mut self.site.server.connection().await, &FULL).await;
        });
        self.site.weight_of_all() as f64 / MEMBERS as f64
    }

    fn round<F: Future<Output = ()>>(&self, state: &State, ask: &impl Fn() -> F) -> u64 {
        self.site.flush();
        self.site.runtime.block_on(async {
            let mut connection = self.site.server.connection().await;
            self.limiter.set_rate(Rate::overall(MEMBERS, INTERVAL)).await.expect("a rate");
            fill(&mut connection, state).await;
            run_all(&mut connection, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]).await;
            run_all(&mut connection, &["CONFIG", "SET", "slowlog-max-len", "1000"]).await;
            run_all(&mut connection, &["SLOWLOG", "RESET"]).await;
            ask().await;
            let calls: Vec<Entry> = cmd("SLOWLOG")
                .arg(&["GET", "1000"])
                .query_async(&mut connection)
                .await
                .expect("the slow log");
            let scripts = calls.iter().filter(|call| call.3[0].starts_with(b"EVAL"));
            scripts.map(|call| call.2).max().expect("a script that ran")
        })
    }
}

async fn run_all(connection: &mut MultiplexedConnection, words: &[&str]) {
    cmd(words[0]).arg(&words[1..]).exec_async(connection).await.expect("done");
}

async fn fill(connection: &mut MultiplexedConnection, state: &State) {
    let mut add = cmd("ZADD");
    add.arg("{bench}:permits");
    for number in 0..u128::from(MEMBERS) {
        let member = [[16].as_slice(), &number.to_be_bytes(), &1_u32.to_ne_bytes()].concat();
        add.arg(NOW - state.age).arg(member);
    }
    add.exec_async(connection).await.expect("added");
    if let Some(value) = state.value {
        run_all(connection, &["SET", "{bench}:value", &value.to_string()]).await;
    }
}
