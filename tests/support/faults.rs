//! Helpers for tests of faults: a limiter whose `remaining` counts what was taken, and ways to wait
//! for trouble and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, Pool, Quota, Redis};

use super::Server;
pub use super::eventually;
pub use super::trouble::*;

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

/// An error with all its causes, in one line.
pub fn chain(error: &Error) -> String {
    format!("{error:#}")
}

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
