//! Tests of worker and partitions over fake connections, in paused time.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis_once::calls::{ConnectionFuture, Connections, RepliesFuture, ReplyFuture};
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, advance, sleep};

use super::super::super::decision_times::LATE_REPLY_TIMEOUT;
use super::super::super::script::{Op, Request};
use crate::algorithm::FixedWindow;
use crate::core::charge::KeepFree;
use crate::core::{Charge, Quota};
use crate::limiter::Limiter;
use crate::limiter::configured::ConfiguredAlgorithm;
use crate::redis::{Pool, Redis};

use super::*;

/// Connections of which the first `dead` never answer. All others answer that Redis is loading.
struct Fake {
    dead: usize,
    /// The time to make a connection. `None`: all connections exist from the beginning.
    connect_time: Option<Duration>,
    used: AtomicUsize,
    attempts: AtomicUsize,
    senders: Senders,
}

/// The tasks that sent the calls.
type Senders = Arc<Mutex<Vec<task::Id>>>;

impl Fake {
    fn new(dead: usize, connect_time: Option<Duration>) -> Arc<Self> {
        let (used, attempts) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { dead, connect_time, used, attempts, senders: Senders::default() })
    }

    fn next(&self) -> Arc<dyn SharedConnection> {
        let is_dead = self.used.fetch_add(1, Relaxed) < self.dead;
        Arc::new(FakeConnection { is_dead, senders: Arc::clone(&self.senders) })
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
}

struct FakeConnection {
    is_dead: bool,
    senders: Senders,
}

impl SharedConnection for FakeConnection {
    fn send(&self, _: redis::Cmd) -> ReplyFuture {
        self.senders.lock().expect("no panic").push(task::id());
        match self.is_dead {
            true => Box::pin(pending()),
            false => Box::pin(async {
                yield_now().await;
                redis::parse_redis_value(b"-LOADING it begins\r\n")
            }),
        }
    }

    fn send_all(&self, _: redis::Pipeline) -> RepliesFuture {
        Box::pin(pending())
    }
}

/// Charges `keys` keys at the same moment. Returns the number of answers from the server.
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
    // One connection takes the charge that found the limiter idle, and one takes half of the
    // others.
    let answered = answered(Pool::new(Fake::new(2, None)), 65).await;
    assert_eq!(answered, 32);
}

#[tokio::test(start_paused = true)]
async fn all_charges_wait_for_the_same_attempt_to_connect() {
    let fake = Fake::new(0, Some(Duration::from_millis(20)));
    let pool = Pool::new(Arc::clone(&fake));
    assert_eq!(answered(pool, 2_000).await, 2_000);
    assert_eq!(fake.attempts.load(Relaxed), 1);
}

/// A worker that serves one caller steps aside before the caller's next charge. Otherwise each
/// charge would cost two task switches more.
#[tokio::test(start_paused = true)]
async fn a_lone_caller_sends_its_charges_itself_after_the_first() {
    let fake = Fake::new(0, Some(Duration::from_millis(20)));
    let pool = Pool::new(Arc::clone(&fake));
    let limiter = Redis::new("api", FixedWindow::new(Quota::per_second(1)), pool);
    let caller = tokio::spawn(async move {
        for key in 0..10 {
            limiter.check(&Charge::new(key.to_string())).await.unwrap_err();
        }
        task::id()
    });
    let caller = caller.await.unwrap();
    let senders = fake.senders.lock().expect("no panic");
    let by_caller = senders.iter().map(|sender| *sender == caller).collect::<Vec<_>>();
    assert_eq!(by_caller, [vec![false], vec![true; 9]].concat());
}

/// If the answers to all calls were passed on together, the server would stand still while this
/// process runs all of their callers.
#[tokio::test(start_paused = true)]
async fn the_callers_of_one_call_ask_again_before_those_of_the_next_are_answered() {
    assert_eq!(calls_before_the_answers(Duration::ZERO).await, [(3, 32), (4, 31)]);
}

#[tokio::test(start_paused = true)]
async fn in_a_slow_process_all_answers_are_passed_on_at_once() {
    assert_eq!(calls_before_the_answers(Duration::from_millis(3)).await, [(3, 63)]);
}

/// Of 64 callers, who ask at the same time, one sends its charge inline, and the answers to two
/// calls come in the same moment. Returns how many of these callers had got theirs after how many
/// calls were sent. Other tasks of the process take `busy` in each turn.
async fn calls_before_the_answers(busy: Duration) -> Vec<(usize, usize)> {
    let others = tokio::spawn(async move {
        loop {
            advance(busy).await;
        }
    });
    let fake = Fake::new(0, None);
    let limiter =
        Redis::new("api", FixedWindow::new(Quota::per_second(1)), Pool::new(Arc::clone(&fake)));
    let callers = (0..64).map(|key: usize| {
        let (limiter, fake) = (limiter.clone(), Arc::clone(&fake));
        async move {
            let calls = || fake.senders.lock().expect("no panic").len();
            limiter.check(&Charge::new(key.to_string())).await.unwrap_err();
            let sent = calls();
            limiter.check(&Charge::new(key.to_string())).await.unwrap_err();
            sent
        }
    });
    let mut running = callers.collect::<JoinSet<_>>();
    let mut sent = BTreeMap::new();
    while let Some(calls) = running.join_next().await {
        *sent.entry(calls.expect("no panic")).or_insert(0) += 1;
    }
    others.abort();
    sent.remove(&1);
    sent.into_iter().collect()
}

/// The calls that were sent: the connection of each, and the last letter of its key.
type Sent = Arc<Mutex<Vec<(usize, char)>>>;

/// Connections that take turns, write down what is sent, and never answer.
#[derive(Default)]
struct Recorder {
    used: AtomicUsize,
    sent: Sent,
}

impl Connections for Recorder {
    fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
        let number = self.used.fetch_add(1, Relaxed);
        Some(Arc::new(Recorded { number, sent: Arc::clone(&self.sent) }))
    }

    fn connection(self: Arc<Self>, _: u16) -> ConnectionFuture {
        Box::pin(pending())
    }
}

struct Recorded {
    number: usize,
    sent: Sent,
}

impl SharedConnection for Recorded {
    fn send(&self, command: redis::Cmd) -> ReplyFuture {
        let keys = command.args_iter().filter_map(|argument| match argument {
            redis::Arg::Simple(text) => text.strip_prefix(b"api:")?.last().copied(),
            _ => None,
        });
        let sent = keys.map(|letter| (self.number, char::from(letter)));
        self.sent.lock().expect("no panic").extend(sent);
        Box::pin(pending())
    }

    fn send_all(&self, _: redis::Pipeline) -> RepliesFuture {
        Box::pin(pending())
    }
}

/// Sends a charge, a refund and a charge, each in its own call, and runs none of their tasks.
async fn send_three() -> (Worker, Sent) {
    let recorder = Arc::<Recorder>::default();
    let pool = Pool::new(Arc::clone(&recorder));
    let window = FixedWindow::new(Quota::per_second(1));
    let named = ConfiguredAlgorithm::new("api".into(), window).expect("an algorithm");
    let mut worker = Worker::new(Arc::new(Config::new(pool.clone(), vec!["api:".into()], &named)));
    worker.update();
    let charge = || Op::Check { cost: 1, max_wait: 0 };
    let refund = Op::Refund { units: 1, cost: 1, mark: Default::default() };
    for (key, op) in [("a", charge()), ("b", refund), ("c", charge())] {
        let request = Request {
            key: key.into(),
            quota: None,
            rule: None,
            keep_free: KeepFree::default(),
            op,
        };
        let deadline = Instant::now() + LATE_REPLY_TIMEOUT;
        worker.queue.push(QueuedRequest::without_receiver(&pool, request, Some(deadline)));
        worker.send();
    }
    (worker, Arc::clone(&recorder.sent))
}

/// A call with refunds does not overtake another call.
#[tokio::test(start_paused = true)]
async fn calls_are_written_in_the_order_in_which_they_are_put_together() {
    let (_worker, sent) = send_three().await;
    let letters: String = sent.lock().expect("no panic").iter().map(|(_, letter)| letter).collect();
    assert_eq!(letters, "abc");
}

/// Over another connection the call could be decided before the refunds.
#[tokio::test(start_paused = true)]
async fn a_call_goes_over_the_connection_of_the_refunds_before_it() {
    let (_worker, sent) = send_three().await;
    sleep(Duration::from_millis(1)).await;
    let mut sent = sent.lock().expect("no panic").clone();
    sent.sort_by_key(|(_, letter)| *letter);
    assert_eq!(sent, [(0, 'a'), (1, 'b'), (1, 'c')]);
}
