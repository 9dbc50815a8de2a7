//! Helpers for tests of Redisson's limiter: a server, one limiter on it, and a clock, in ms from
//! one base.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tower_sluice::limiter::Reservation;
use tower_sluice::{Charge, Error, ErrorKind, Limiter, Outcome};
use tower_sluice_redisson::{RRateLimiter, Rate, Redisson};

use support::Server;

pub(super) const BASE: u64 = 1_767_225_600_000;

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquired {
    /// Granted; the permits that are left.
    Granted(u64),
    /// Refused; the wait in ms.
    Wait(u64),
    /// More permits than the rate.
    Exceeds,
}

/// A server, one limiter on it, and a clock.
pub(super) struct Bench {
    pub(super) server: Server,
    pub(super) connection: MultiplexedConnection,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) redisson: Redisson,
    pub(super) limiter: RRateLimiter,
}

impl Bench {
    pub(super) async fn new() -> Self {
        let server = Server::for_redisson();
        let connection = server.connection().await;
        let clock = Arc::new(AtomicU64::new(0));
        let redisson = client(&server, &clock, "A");
        let limiter = redisson.rate_limiter("r").expect("a name");
        Self { server, connection, clock, redisson, limiter }
    }

    /// With a limiter of this rate, in this interval of ms.
    pub(super) async fn of(permits: u64, interval: u64) -> Self {
        let bench = Self::new().await;
        assert!(bench.limiter.try_set_rate(rate(permits, interval)).await.expect("set"));
        bench
    }

    pub(super) fn at(&self, millis: u64) {
        self.clock.store(millis, Relaxed);
    }

    pub(super) async fn take(&self, permits: u64, millis: u64) -> Acquired {
        self.at(millis);
        self.check(&self.redisson, permits).await.0
    }

    /// The answer, and the reservation.
    pub(super) async fn check(
        &self,
        redisson: &Redisson,
        permits: u64,
    ) -> (Acquired, Option<Reservation>) {
        let mut decision =
            redisson.check(&Charge::new("r").cost(permits)).await.expect("a decision");
        let result = match decision.outcome() {
            Outcome::Allow => Acquired::Granted(decision.remaining().expect("reported")),
            Outcome::Retry(wait) => {
                assert_eq!(wait.subsec_nanos() % 1_000_000, 0, "whole ms of a clock cut to ms");
                Acquired::Wait(wait.as_millis() as u64)
            }
            Outcome::Deny { retry_after: None } => Acquired::Exceeds,
            other => panic!("{other:?}"),
        };
        (result, decision.take_reservation())
    }

    pub(super) async fn all(&self, asked: &[(u64, u64, Acquired)]) {
        for (permits, millis, result) in asked {
            assert_eq!(self.take(*permits, *millis).await, *result, "{permits} at {millis}");
        }
    }

    pub(super) async fn available(&self, millis: u64) -> u64 {
        self.at(millis);
        self.limiter.available_permits().await.expect("permits")
    }

    pub(super) async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        cmd(words[0]).arg(&words[1..]).query_async(&mut self.connection).await.expect("a reply")
    }

    pub(super) async fn value(&mut self) -> Option<i64> {
        self.ask(&["GET", "{r}:value"]).await
    }

    /// The permits of each member, and its time.
    pub(super) async fn members(&mut self) -> Vec<(u32, u64)> {
        let pairs: Vec<(Vec<u8>, f64)> =
            self.ask(&["ZRANGE", "{r}:permits", "0", "-1", "WITHSCORES"]).await;
        let permits = |member: &[u8]| u32::from_ne_bytes(*member.last_chunk().expect("four bytes"));
        pairs.iter().map(|(member, at)| (permits(member), *at as u64 - BASE)).collect()
    }

    /// Calls `acquire`, `release` or `available` as Java does. Returns `nil` if it takes or
    /// releases permits, else the wait, or the permits that are available.
    pub(super) async fn java(&mut self, call: &str, permits: u32, millis: u64) -> String {
        let script = include_str!("java.lua");
        let mut asked = cmd("EVAL");
        asked.arg(script).arg(3).arg(&["r", "{r}:value", "{r}:permits"]);
        let random: [u8; 16] = fastrand::u128(..).to_ne_bytes();
        asked.arg(BASE + millis).arg(call).arg(permits).arg(random.as_slice());
        asked.query_async(&mut self.connection).await.expect("an answer")
    }

    /// Puts a member that begins so.
    pub(super) async fn put(&mut self, head: &[u8], permits: u32, millis: u64) {
        let member = [head, &permits.to_ne_bytes()].concat();
        let mut add = cmd("ZADD");
        add.arg("{r}:permits").arg(BASE + millis).arg(member);
        let _: i64 = add.query_async(&mut self.connection).await.expect("added");
    }

    pub(super) async fn calls(&mut self, command: &str) -> u64 {
        support::stats::calls(&mut self.connection, command).await
    }
}

pub(super) fn client(server: &Server, clock: &Arc<AtomicU64>, id: &str) -> Redisson {
    let clock = Arc::clone(clock);
    Redisson::new(server.pool())
        .client_id(id)
        .decision_timeout(Duration::from_secs(5))
        .clock(move || Duration::from_millis(BASE + clock.load(Relaxed)))
}

pub(super) fn rate(permits: u64, interval: u64) -> Rate {
    Rate::overall(permits, Duration::from_millis(interval))
}

pub(super) async fn message<T: Debug>(
    call: impl Future<Output = Result<T, Error>>,
) -> (ErrorKind, String) {
    let error = call.await.expect_err("an error");
    (error.kind(), error.to_string())
}
