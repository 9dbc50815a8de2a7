//! Redisson's limiter in Lua against its model in Rust: random histories with faults, which
//! land on the edges.

use std::collections::BTreeSet;

use redis::Cmd;

use crate::*;

use support::script::NOW;

use super::model::{Report, Rule, State};

/// A kind of history, by what may happen in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// All that Java takes part in without going over by itself.
    WithJava,
    /// All that the bound survives.
    Tame,
    /// Whatever may be stored.
    Wild,
}

/// A limiter in Lua, and its model.
struct Twins {
    connection: MultiplexedConnection,
    /// The digest of the script.
    script: String,
    dice: fastrand::Rng,
    rate: u64,
    interval: u64,
    now: i64,
    /// The instant of the last reply.
    decided_at: i64,
    state: State,
    /// The grants so far, which may be asked for again: their bytes and permits.
    grants: Vec<([u8; 16], i64)>,
}

impl Twins {
    async fn new(server: &Server, seed: u64, rate: u64, interval: u64) -> Self {
        let mut connection = server.connection().await;
        cmd("FLUSHALL").exec_async(&mut connection).await.expect("flushed");
        let permits = include_str!("../../scripts/redisson.lua");
        let settings = include_str!("../../scripts/redisson_settings.lua");
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(format!("{permits}{settings}"));
        let script = load.query_async(&mut connection).await.expect("a digest");
        let mut twins = Self {
            connection,
            script,
            dice: fastrand::Rng::with_seed(seed),
            rate,
            interval,
            now: NOW,
            decided_at: NOW,
            state: State::default(),
            grants: Vec::new(),
        };
        let arguments = [0, rate, interval, 0, 0].map(|number| number.to_string());
        let reply = twins.call("try_set", &arguments.each_ref().map(String::as_bytes)).await;
        assert_eq!(reply[..1], [0]);
        twins
    }

    fn rule(&self) -> Rule {
        Rule { rate: self.rate.cast_signed(), interval: self.interval.cast_signed() }
    }

    /// Calls the script. Returns its reply without the instant, which it keeps.
    async fn call(&mut self, operation: &str, arguments: &[&[u8]]) -> Vec<i64> {
        let mut call = cmd("EVALSHA");
        call.arg(&self.script).arg(5);
        call.arg(&["r", "{r}:value", "{r}:permits", "{r}:value:id", "{r}:permits:id"]);
        call.arg(self.now).arg(operation).arg(arguments);
        let mut reply: Vec<i64> = call.query_async(&mut self.connection).await.expect("a reply");
        self.decided_at = reply.remove(1);
        assert!(self.decided_at == self.now || operation == "acquire");
        reply
    }

    async fn run(&mut self, command: &mut Cmd) {
        command.exec_async(&mut self.connection).await.expect("done");
    }

    /// Java does something so often, and the twin takes over what is stored then.
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
        (self.state.value, self.state.members) = self.stored().await;
    }

    /// No more is held in the last interval than the rate.
    fn check_bound(&self, place: &str) {
        let live = self.now / 1_000 - self.interval.cast_signed();
        let permits = |member: &[u8]| u32::from_ne_bytes(*member.last_chunk().expect("permits"));
        let members = self.state.members.iter().filter(|(at, _)| *at > live);
        let held: u64 = members.map(|(_, member)| u64::from(permits(member))).sum();
        assert!(held <= self.rate, "{place}: {held} of {}", self.rate);
    }

    /// Checks that what is stored is what the twin has.
    async fn check_stored(&mut self, place: &str) {
        let (value, members) = self.stored().await;
        assert_eq!(value, self.state.value, "{place}");
        assert_eq!(members, self.state.members, "{place}");
    }

    async fn stored(&mut self) -> (Option<i64>, BTreeSet<(i64, Vec<u8>)>) {
        let value: Option<i64> =
            cmd("GET").arg("{r}:value").query_async(&mut self.connection).await.expect("a value");
        let pairs: Vec<(Vec<u8>, i64)> = cmd("ZRANGE")
            .arg(&["{r}:permits", "0", "-1", "WITHSCORES"])
            .query_async(&mut self.connection)
            .await
            .expect("members");
        (value, pairs.into_iter().map(|(member, score)| (score, member)).collect())
    }

    /// The µs until `millis` ms after the millisecond of the decision.
    fn until(&self, millis: i64) -> i64 {
        (millis * 1_000 - self.decided_at % 1_000).max(0)
    }

    fn assert_reply(&self, reply: &[i64], verdict: Verdict, report: Report, place: &str) {
        let [outcome, wait, left, reset, rate, interval] = *reply else { panic!("{reply:?}") };
        let lua = match outcome {
            0 => {
                // Of a grant that took the last one, and was not sent again, when
                // the next one comes.
                let next = self.state.next_permit(&self.rule(), self.now);
                assert!(wait == 0 || (left == 0 && self.until(wait) == next), "{place}");
                Verdict::Allow
            }
            1 => Verdict::Deny(self.until(wait)),
            2 => Verdict::Never,
            other => panic!("{other}"),
        };
        assert_eq!(lua, verdict, "{place}");
        let reset_after = self.until(reset);
        assert_eq!((left, reset_after), (report.remaining, report.reset_after), "{place}");
        assert_eq!([rate, interval].map(i64::cast_unsigned), [self.rate, self.interval]);
    }

    async fn acquire(&mut self, permits: i64, grant: [u8; 16], place: &str) -> bool {
        let rule = self.rule();
        let text = permits.to_string();
        let member = [&[16][..], &grant, &(permits as u32).to_ne_bytes()].concat();
        let granted = self.state.members.iter().find(|(_, stored)| *stored == member);
        let granted_at = granted.map(|(score, _)| score * 1_000);
        let reply = self.call("acquire", &[text.as_bytes(), &grant]).await;
        assert_eq!(self.decided_at, granted_at.unwrap_or(self.now), "{place}");
        let (verdict, report) = self.state.acquire(&rule, self.now, permits, &grant);
        self.assert_reply(&reply, verdict, report, place);
        verdict == Verdict::Allow
    }

    /// One step of a history, with faults or without those that a bound does not survive.
    async fn step(&mut self, history: History, place: &str) {
        let (interval, rule) = (self.interval.cast_signed(), self.rule());
        let steps = [0, 0, 1, 2, interval / 3, interval - 1, interval, interval + 1];
        let step = steps[self.dice.usize(..steps.len())];
        self.now += step * 1_000 + self.dice.i64(0..3) * 333;
        let most = self.rate.cast_signed();
        let permits = [1, 1, 2, most / 2, most, most + 1][self.dice.usize(..6)].max(1);
        let kinds = match history {
            History::WithJava => 14,
            History::Tame => 15,
            History::Wild => 21,
        };
        match self.dice.u8(..kinds) {
            0..8 => {
                let grant = self.dice.u128(..).to_ne_bytes();
                if self.acquire(permits, grant, place).await {
                    self.grants.push((grant, permits));
                }
            }
            8 if !self.grants.is_empty() => {
                let (grant, permits) = self.grants[self.dice.usize(..self.grants.len())];
                self.acquire(permits, grant, place).await;
            }
            9 | 10 => {
                let reply = self.call("available", &[]).await;
                let (verdict, report) = self.state.available(&rule, self.now);
                self.assert_reply(&reply, verdict, report, place);
            }
            11 => {
                let reply = self.call("release", &[permits.to_string().as_bytes()]).await;
                let (freed, more) = self.state.release(&rule, self.now, permits);
                assert_eq!(reply, [0, freed, i64::from(more)], "{place}");
            }
            12 if !self.grants.is_empty() => {
                let (grant, held) = self.grants[self.dice.usize(..self.grants.len())];
                let part = self.dice.i64(1..=held + 1);
                let [one, other] = [part, held].map(|number| number.to_string());
                let reply = self.call("refund", &[one.as_bytes(), &grant, other.as_bytes()]).await;
                let freed = self.state.refund_grant(&rule, part, &grant, held).unwrap_or(0);
                assert_eq!(reply, [0, freed], "{place}");
            }
            13 => {
                // What was sent twice was subtracted twice.
                if let Some(value) = &mut self.state.value {
                    *value -= permits;
                    self.run(cmd("DECRBY").arg(&["{r}:value", &permits.to_string()])).await;
                }
            }
            14 => {
                // The value is lost: Java would grant a full rate again.
                self.run(cmd("DEL").arg("{r}:value")).await;
                self.state.value = None;
            }
            15 => {
                self.rate = [1, 3, 10, 300][self.dice.usize(..4)];
                self.interval = [1, 40, 1_000][self.dice.usize(..3)];
                let [rate, interval] = [self.rate, self.interval].map(|number| number.to_string());
                let arguments = ["0", "1", &rate, &interval, "0", "0"].map(str::as_bytes);
                assert_eq!(self.call("set", &arguments).await, [0, 1]);
                let rule = self.rule();
                self.state.keep_state(&rule, self.now);
            }
            20 => {
                let (permits, grant) = (permits * 2, self.dice.u128(..).to_ne_bytes());
                let text = permits.to_string();
                let reply = self.call("penalize", &[text.as_bytes(), &grant]).await;
                let report = self.state.penalize(&rule, self.now, permits, &grant);
                self.assert_reply(&reply, Verdict::Allow, report, place);
            }
            16 => {
                self.run(cmd("DEL").arg("{r}:permits")).await;
                self.state.members.clear();
            }
            17 => {
                let value =
                    [i64::from(u32::MAX) * -1_000, -7, 0, 15, 1 << 52][self.dice.usize(..5)];
                self.run(cmd("SET").arg("{r}:value").arg(value)).await;
                self.state.value = Some(value);
            }
            18 => {
                let heads: [&[u8]; 5] =
                    [b"", b"\0\0\x80?", b"\x08\0\0\0\0\0\0\0abcdefgh", b"\x08abcdefgh", b"\x10"];
                let head = heads[self.dice.usize(..heads.len())];
                let permits = [0, 1, 3, u32::MAX][self.dice.usize(..4)];
                let mut member = [head, &permits.to_ne_bytes()].concat();
                member.truncate(self.dice.usize(2..=member.len()));
                let at = self.now / 1_000 + self.dice.i64(-interval - 2..=interval + 2);
                self.run(cmd("ZADD").arg("{r}:permits").arg(at).arg(&member)).await;
                self.state.members.retain(|(_, stored)| *stored != member);
                self.state.members.insert((at, member));
            }
            19 => {
                // A crowd, so that not all members are added up, or removed at once.
                let count = [200, 300, 5_000][self.dice.usize(..3)];
                let at = self.now / 1_000 - self.dice.i64(0..2) * interval;
                let mut add = cmd("ZADD");
                add.arg("{r}:permits");
                for _ in 0..count {
                    let random: [u8; 16] = self.dice.u128(..).to_ne_bytes();
                    let member = [&[16], random.as_slice(), &1_u32.to_ne_bytes()].concat();
                    add.arg(at).arg(&member);
                    self.state.members.insert((at, member));
                }
                self.run(&mut add).await;
            }
            _ => {}
        }
        self.check_stored(place).await;
    }
}

#[tokio::test]
async fn redisson_agrees_with_its_script() {
    let server = Server::for_redisson();
    let mut steps = 0;
    for seed in 0..20 * times() as u64 {
        let (rate, interval) =
            [(1, 1_000), (3, 1), (10, 1_000), (300, 40), (20_000, 1_000)][seed as usize % 5];
        let mut twins = Twins::new(&server, seed, rate, interval).await;
        for number in 0..100 {
            twins.step(History::Wild, &format!("seed {seed}, step {number}")).await;
            steps += 1;
        }
    }
    println!("redisson: {steps} steps alike");
}

/// A lost value, a value that was subtracted from twice, grants sent again and permits given back:
/// no stretch of an interval ever holds more permits than the rate.
#[tokio::test]
async fn no_window_goes_over_the_rate_whatever_happens_to_the_value() {
    let server = Server::for_redisson();
    for seed in 0..36 * times() as u64 {
        let (rate, interval) = [(1, 1_000), (3, 10), (10, 1_000), (300, 40)][seed as usize % 4];
        let mut twins = Twins::new(&server, seed, rate, interval).await;
        for number in 0..80 {
            let place = format!("seed {seed}, step {number}");
            twins.step(History::Tame, &place).await;
            twins.check_bound(&place);
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
        let mut twins = Twins::new(&server, seed, rate, interval).await;
        for number in 0..80 {
            let place = format!("seed {seed}, step {number}");
            match twins.dice.u8(..4) {
                0 => twins.java("available", 0, 1).await,
                1 => {
                    let permits = [1, 2, rate.div_ceil(3)][twins.dice.usize(..3)].min(rate);
                    twins.java("acquire", permits, 1).await;
                }
                // Too many grants to be added up.
                2 if rate == 600 => {
                    let times = twins.dice.u8(..);
                    twins.java("acquire", 1, times).await;
                }
                _ => twins.step(History::WithJava, &place).await,
            }
            twins.check_bound(&place);
        }
    }
}
