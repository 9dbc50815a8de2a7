//! Helpers for tests of faults: a limiter whose `remaining` counts what was taken, and ways to wait
//! for trouble and its end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, Pool, Quota, Redis};

use super::Server;
pub use super::eventually;

/// The deadline of one decision.
pub const D: Duration = Duration::from_millis(50);
/// The time that may be added to it.
pub const SLACK: Duration = Duration::from_secs(2);
/// The time within which things must be well again, however slow the machine is.
pub const LONG: Duration = Duration::from_secs(30);

pub const MILLION: u64 = 1_000_000;

pub type Yearly = Redis<FixedWindow>;

/// A limiter that admits a million a year, so that its `remaining` counts what was taken.
pub fn yearly(url: &str) -> Yearly {
    over(Pool::connect(url).expect("an address"))
}

pub fn over(pool: Pool) -> Yearly {
    let quota = Quota::new(MILLION, Duration::from_secs(365 * 86_400));
    Redis::new("faults", FixedWindow::new(quota), pool).decision_timeout(D)
}

pub fn one() -> Charge {
    Charge::new("key")
}

/// Asks, and checks that the answer comes in time.
pub async fn ask(limiter: &Yearly) -> Result<Decision, Error> {
    in_time(D + SLACK, limiter.check(&one())).await
}

/// Awaits `call`, which must end by `limit`. A process that was paused finds all its timers expired
/// at once, so the call then gets a few turns more.
pub async fn in_time<F: Future>(limit: Duration, call: F) -> F::Output {
    let late = async {
        sleep(limit).await;
        for _ in 0..100 {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        answer = call => answer,
        () = late => panic!("no answer in {limit:?}"),
    }
}

/// The error that asking ends with. A machine so busy that timers fire late causes saturation at
/// times: then it asks again.
pub async fn trouble<L: Limiter>(limiter: &L, charge: &Charge) -> Error {
    let begun = Instant::now();
    loop {
        let error = limiter.check(charge).await.expect_err("no decision");
        if error.kind() != ErrorKind::Saturation || begun.elapsed() > LONG {
            return error;
        }
    }
}

/// The kind of that error, which must come in time.
pub async fn kind(limiter: &Yearly) -> ErrorKind {
    let begun = Instant::now();
    loop {
        let kind = ask(limiter).await.expect_err("no decision").kind();
        if kind != ErrorKind::Saturation || begun.elapsed() > LONG {
            return kind;
        }
    }
}

/// Asks until it is decided, and returns how many errors of `kind` came before. No others may, but
/// for saturation on a busy machine.
pub async fn until_decided(limiter: &Yearly, kind: ErrorKind) -> usize {
    let begun = Instant::now();
    let mut errors = 0;
    while let Err(error) = ask(limiter).await {
        let busy = kind == ErrorKind::Infrastructure && error.kind() == ErrorKind::Saturation;
        assert!(busy || error.kind() == kind, "{error:?}");
        assert!(begun.elapsed() < LONG, "{error:?}");
        errors += usize::from(!busy);
        sleep(Duration::from_millis(1)).await;
    }
    errors
}

/// Asks until the answer is an error of `kind`.
pub async fn until(limiter: &Yearly, kind: ErrorKind) {
    let begun = Instant::now();
    loop {
        match ask(limiter).await {
            Err(error) if error.kind() == kind => return,
            other => assert!(begun.elapsed() < LONG, "{other:?}"),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Asks until it is decided, whatever the errors before.
pub async fn until_well<L: Limiter>(limiter: &L) -> Duration {
    let begun = Instant::now();
    while let Err(error) = limiter.check(&one()).await {
        assert!(begun.elapsed() < LONG, "{error:?}");
        sleep(Duration::from_millis(1)).await;
    }
    begun.elapsed()
}

/// The units taken, by a limiter of its own.
pub async fn taken(server: &Server) -> u64 {
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    let peek = limiter.check(&one().cost(0)).await.expect("a peek");
    MILLION - peek.remaining().expect("told")
}

pub async fn run(connection: &mut MultiplexedConnection, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec_async(connection).await.expect("a reply");
}

/// Ends all connections of others but those of replicas.
pub async fn cut(connection: &mut MultiplexedConnection) {
    run(connection, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
}

/// An error with all its causes, in one line.
pub fn chain(error: &Error) -> String {
    format!("{error:#}")
}

/// The numbers of the other clients that the server has. Its replicas are none.
pub async fn others(connection: &mut MultiplexedConnection) -> Vec<u64> {
    let own: u64 = redis::cmd("CLIENT").arg("ID").query_async(connection).await.expect("a number");
    let mut ask = redis::cmd("CLIENT");
    ask.arg("LIST").arg("TYPE").arg("normal");
    let list: String = ask.query_async(connection).await.expect("a list");
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok();
    list.lines().filter_map(id).filter(|id| *id != own).collect()
}

/// One of the server's own statistics.
pub async fn figure(connection: &mut MultiplexedConnection, name: &str) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("stats").query_async(connection).await.expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.expect("known").parse().expect("a number")
}

/// The size of a test that a command of its own makes larger.
pub fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

/// Connections that clients made to the server so far, this test's own included.
pub const RECEIVED: &str = "total_connections_received";

/// Callers that ask again and again until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    pub fn on(limiter: &Yearly, callers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(Relaxed) {
                    let _ = limiter.check(&one()).await;
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
        Self { stop, callers: tasks }
    }

    pub async fn stop(self) {
        self.stop.store(true, Relaxed);
        self.callers.join_all().await;
    }
}
