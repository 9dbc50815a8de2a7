//! Random histories of Redisson's script, which land on the edges, with faults and beside Java: no
//! stretch of an interval ever holds more permits than the rate.

use crate::*;

use support::script::NOW;

/// A limiter in Lua, and its callers.
struct History {
    connection: MultiplexedConnection,
    /// The digest of the script.
    script: String,
    dice: fastrand::Rng,
    rate: u64,
    interval: u64,
    now: i64,
    /// The grants so far, which may be asked for again: their bytes and permits.
    grants: Vec<([u8; 16], u64)>,
}

impl History {
    async fn new(server: &Server, seed: u64, rate: u64, interval: u64) -> Self {
        let mut connection = server.connection().await;
        cmd("FLUSHALL").exec_async(&mut connection).await.expect("flushed");
        let permits = include_str!("../../scripts/redisson.lua");
        let settings = include_str!("../../scripts/redisson_settings.lua");
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(format!("{permits}{settings}"));
        let script = load.query_async(&mut connection).await.expect("a digest");
        let (dice, grants) = (fastrand::Rng::with_seed(seed), Vec::new());
        let mut history = Self { connection, script, dice, rate, interval, now: NOW, grants };
        let arguments = [0, rate, interval, 0, 0].map(|number| number.to_string());
        let reply = history.call("try_set", &arguments.each_ref().map(String::as_bytes)).await;
        assert_eq!(reply[0], 0);
        history
    }

    async fn call(&mut self, operation: &str, arguments: &[&[u8]]) -> Vec<i64> {
        let mut call = cmd("EVALSHA");
        call.arg(&self.script).arg(5);
        call.arg(&["r", "{r}:value", "{r}:permits", "{r}:value:id", "{r}:permits:id"]);
        call.arg(self.now).arg(operation).arg(arguments);
        call.query_async(&mut self.connection).await.expect("a reply")
    }

    /// Java does something so often.
    async fn java(&mut self, call: &str, permits: u64, times: u8) {
        for _ in 0..times {
            let mut asked = cmd("EVAL");
            asked.arg(include_str!("java.lua")).arg(3);
            asked.arg(&["r", "{r}:value", "{r}:permits"]).arg(self.now / 1_000);
            let random: [u8; 16] = self.dice.u128(..).to_ne_bytes();
            // Its script fails where the value is low and no member is left, as it does in Java.
            asked.arg(call).arg(permits).arg(random.as_slice());
            let _ = asked.exec_async(&mut self.connection).await;
        }
    }

    /// Takes permits for a grant, which is stored if it was admitted.
    async fn acquire(&mut self, permits: u64, grant: [u8; 16]) -> bool {
        let reply = self.call("acquire", &[permits.to_string().as_bytes(), &grant]).await;
        let member = [&[16][..], &grant, &(permits as u32).to_ne_bytes()].concat();
        let mut score = cmd("ZSCORE");
        score.arg("{r}:permits").arg(member);
        let stored: Option<f64> = score.query_async(&mut self.connection).await.expect("a score");
        assert_eq!(reply[0] == 0, stored.is_some(), "{reply:?}");
        stored.is_some()
    }

    /// No more is held in the last interval than the rate.
    async fn check_bound(&mut self, place: &str) {
        let live = self.now / 1_000 - self.interval.cast_signed();
        let mut held = cmd("ZRANGEBYSCORE");
        held.arg("{r}:permits").arg(format!("({live}")).arg("+inf");
        let members: Vec<Vec<u8>> = held.query_async(&mut self.connection).await.expect("members");
        let permits = |member: &Vec<u8>| u32::from_ne_bytes(*member.last_chunk().expect("permits"));
        let held: u64 = members.iter().map(|member| u64::from(permits(member))).sum();
        assert!(held <= self.rate, "{place}: {held} of {}", self.rate);
    }

    /// One step. With Java beside, the value is not lost: Java would grant a full rate again.
    async fn step(&mut self, with_java: bool) {
        let interval = self.interval.cast_signed();
        let steps = [0, 0, 1, 2, interval / 3, interval - 1, interval, interval + 1];
        let step = steps[self.dice.usize(..steps.len())];
        self.now += step * 1_000 + self.dice.i64(0..3) * 333;
        let permits = [1, 1, 2, self.rate / 2, self.rate, self.rate + 1][self.dice.usize(..6)];
        let permits = permits.max(1);
        let text = permits.to_string();
        match self.dice.u8(..if with_java { 14 } else { 15 }) {
            0..8 => {
                let grant = self.dice.u128(..).to_ne_bytes();
                if self.acquire(permits, grant).await {
                    self.grants.push((grant, permits));
                }
            }
            8 if !self.grants.is_empty() => {
                let (grant, permits) = self.grants[self.dice.usize(..self.grants.len())];
                self.acquire(permits, grant).await;
            }
            9 | 10 => drop(self.call("available", &[]).await),
            11 => drop(self.call("release", &[text.as_bytes()]).await),
            12 if !self.grants.is_empty() => {
                let (grant, held) = self.grants[self.dice.usize(..self.grants.len())];
                let [part, held] = [self.dice.u64(1..=held + 1), held].map(|one| one.to_string());
                self.call("refund", &[part.as_bytes(), &grant, held.as_bytes()]).await;
            }
            13 => {
                // What was sent twice was subtracted twice.
                if let Ok(true) =
                    cmd("EXISTS").arg("{r}:value").query_async(&mut self.connection).await
                {
                    self.run(&["DECRBY", "{r}:value", &text]).await;
                }
            }
            14 => self.run(&["DEL", "{r}:value"]).await,
            _ => {}
        }
    }

    async fn run(&mut self, words: &[&str]) {
        cmd(words[0]).arg(&words[1..]).exec_async(&mut self.connection).await.expect("done");
    }
}

/// A lost value, a value that was subtracted from twice, grants sent again and permits given back.
#[tokio::test]
async fn no_window_goes_over_the_rate_whatever_happens_to_the_value() {
    let server = Server::for_redisson();
    for seed in 0..36 * times() as u64 {
        let (rate, interval) = [(1, 1_000), (3, 10), (10, 1_000), (300, 40)][seed as usize % 4];
        let mut history = History::new(&server, seed, rate, interval).await;
        for number in 0..80 {
            history.step(false).await;
            history.check_bound(&format!("seed {seed}, step {number}")).await;
        }
    }
}

/// Java takes, and looks, at the same time and by the same clock.
#[tokio::test]
async fn no_window_goes_over_the_rate_with_java_at_the_same_time() {
    let server = Server::for_redisson();
    for seed in 0..16 * times() as u64 {
        let (rate, interval) =
            [(1, 1_000), (10, 1_000), (300, 40), (600, 1_000)][seed as usize % 4];
        let mut history = History::new(&server, seed, rate, interval).await;
        for number in 0..80 {
            match history.dice.u8(..4) {
                0 => history.java("available", 0, 1).await,
                1 => {
                    let permits = [1, 2, rate.div_ceil(3)][history.dice.usize(..3)].min(rate);
                    history.java("acquire", permits, 1).await;
                }
                // Too many grants to be added up.
                2 if rate == 600 => {
                    let times = history.dice.u8(..);
                    history.java("acquire", 1, times).await;
                }
                _ => history.step(true).await,
            }
            history.check_bound(&format!("seed {seed}, step {number}")).await;
        }
    }
}
