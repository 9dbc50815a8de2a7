//! Worker and partitions over connections that tests make up, in paused time.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::sleep;

use super::super::super::client::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use crate::algorithm::FixedWindow;
use crate::{Charge, Error, ErrorKind, Limiter, Pool, Quota, Redis};

use super::*;

/// Connections of which the first are dead, and all others answer that the server is loading.
struct Fake {
    dead: usize,
    /// How long it takes to make one. `None`: they are there.
    connect_time: Option<Duration>,
    used: AtomicUsize,
    attempts: AtomicUsize,
}

impl Fake {
    fn new(dead: usize, connect_time: Option<Duration>) -> Arc<Self> {
        let (used, attempts) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { dead, connect_time, used, attempts })
    }

    fn next(&self) -> Arc<dyn SharedConnection> {
        Arc::new(FakeConnection { is_dead: self.used.fetch_add(1, Relaxed) < self.dead })
    }
}

impl Connections for Fake {
    fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
        let is_there = self.connect_time.is_none() || self.used.load(Relaxed) > 0;
        is_there.then(|| self.next())
    }

    fn connection(self: Arc<Self>, _: u16) -> ConnectionFuture {
        self.attempts.fetch_add(1, Relaxed);
        Box::pin(async move {
            sleep(self.connect_time.unwrap_or_default()).await;
            Ok(self.next())
        })
    }

    fn size(&self) -> usize {
        1
    }

    fn connect_error(&self, _: u16, _: Option<Instant>) -> Option<Error> {
        None
    }

    fn no_reply_error(&self, _: u16) -> Error {
        Error::new(ErrorKind::Infrastructure, "no reply")
    }
}

struct FakeConnection {
    is_dead: bool,
}

impl SharedConnection for FakeConnection {
    fn send(&self, _: redis::Cmd) -> ReplyFuture {
        match self.is_dead {
            true => Box::pin(pending()),
            false => Box::pin(async { redis::parse_redis_value(b"-LOADING it begins\r\n") }),
        }
    }

    fn send_all(&self, _: redis::Pipeline) -> RepliesFuture {
        Box::pin(pending())
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn record_timeout(&self, _: Instant, _: bool) {}

    fn mark_read_only(&self) {}
}

/// Charges so many keys at the same moment, and returns how many had an answer of the server.
async fn answered(pool: Pool, keys: usize) -> usize {
    let limiter = Redis::new("api", FixedWindow::new(Quota::per_second(1)), pool)
        .decision_timeout(Duration::from_millis(80));
    let asked = (0..keys).map(|key| limiter.check(&Charge::new(key.to_string())));
    let answers = asked.collect::<JoinSet<_>>().join_all().await;
    let texts = answers.into_iter().map(|answer| answer.expect_err("loading").to_string());
    texts.filter(|text| text.contains("LOADING")).count()
}

#[tokio::test(start_paused = true)]
async fn charges_are_not_held_back_behind_a_dead_connection() {
    // One takes the charge that found the limiter idle, and one half of the others.
    let answered = answered(Pool::new(Fake::new(2, None), None), 65).await;
    assert_eq!(answered, 32);
}

#[tokio::test(start_paused = true)]
async fn hash_slots_that_share_connections_wait_for_the_same_attempt() {
    let fake = Fake::new(0, Some(Duration::from_millis(20)));
    let pool = Pool::new(Arc::clone(&fake), None).clustered();
    assert_eq!(answered(pool, 2_000).await, 2_000);
    assert_eq!(fake.attempts.load(Relaxed), 1);
}
