//! The judges of a script: each calls a limiter of the crate on a server where that script answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::{Charge, ErrorKind, Outcome, Quota};

use support::trial::algorithms::{Algorithm, Judged, Site, pool};
use support::trial::crew::{self, Size};
use support::trial::judge::{Distance, judge};
use support::trial::workload::Workload;
use support::trial::{edges, held, saturated, stock};
use support::{Server, expires};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Judge {
    /// The oracle's workloads, judged event by event.
    Saturating,
    Mixed,
    /// Called without pause, it admits nearly all that it may.
    Use,
    /// One microsecond before each wait, and at it.
    Edges,
    /// Every key outlives its effect, and none lives forever.
    Expiry,
    /// A state that no script writes is an error.
    Corrupt,
    /// A clock that is set back locks a key for a bounded time.
    Clock,
    /// Holds and settlements of a budget.
    Held,
    /// A charge of before a reset settles nothing, and a state of another quota is not cut.
    Reset,
}

const SIZE: Size = Size { processes: 2, tasks: 8, time: Duration::from_secs(1) };

impl Judge {
    /// Returns what it finds wrong with an algorithm, decided over `url` by `server`; nothing if
    /// all is well.
    pub(crate) fn finds(self, algorithm: &str, server: &Server, url: &str) -> Option<String> {
        let of_trial = || Algorithm::called(algorithm);
        // What cannot be decided any more is found as well.
        caught(|| match self {
            Self::Saturating => workload(of_trial(), Workload::Saturating, server, url),
            Self::Mixed => workload(of_trial(), Workload::Mixed, server, url),
            Self::Use => awaited(async { used(of_trial(), url).await }),
            Self::Edges => {
                edges::walk(of_trial(), url, 1_200);
                None
            }
            Self::Expiry => awaited(async { expiry(of_trial(), server, url).await }),
            Self::Corrupt => awaited(async { corrupt(of_trial(), server, url).await }),
            Self::Clock => awaited(async { clock(of_trial(), url).await }),
            Self::Held => held::walk(url, 20).err(),
            Self::Reset => awaited(async { reset(of_trial(), url).await }),
        })
    }
}

fn workload(
    algorithm: &Algorithm,
    workload: Workload,
    server: &Server,
    url: &str,
) -> Option<String> {
    let quota = workload.quota(algorithm.quota);
    let (_, rows) = crew::run(algorithm, workload, SIZE, url);
    let (mut findings, models) = judge(&rows, Distance::Near, || (algorithm.model)(quota));
    let (fewest, changes, calls) = (findings.fewest, findings.changes, rows.len());
    let writes = models.values().next().map_or(0..=0, |model| model.writes(fewest, changes, calls));
    findings.faults.extend(stock::faults(server, &models, algorithm.runs(rows.len()), writes));
    let broken = match (findings.over, findings.unjustified) {
        (0, 0) => String::from("S4, S5"),
        (0, _) => String::from("S2, unjustified"),
        (_, _) => String::from("S1, over"),
    };
    (!findings.faults.is_empty()).then(|| format!("{broken} ({} faults)", findings.faults.len()))
}

fn awaited(work: impl Future<Output = Option<String>>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Returns what a judge finds; the message, if it panics.
fn caught(judge: impl FnOnce() -> Option<String>) -> Option<String> {
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
        Some(format!("S3: {}", text.lines().next().unwrap_or_default()))
    })
}

fn limiter(algorithm: &Algorithm, url: &str, clock: Option<Arc<AtomicU64>>) -> Arc<dyn Judged> {
    let quota = (algorithm.quota)(Quota::new(50, Duration::from_secs(1)), 50);
    (algorithm.limiter)(quota, Site { clock, ..Site::new(pool(url)) })
}

/// The oracle's guard of S1, with a clock of its own: the machine's speed decides nothing.
async fn used(algorithm: &Algorithm, url: &str) -> Option<String> {
    let used = saturated::used(algorithm, Site::new(pool(url)), String::from("0"), Duration::ZERO);
    let (admitted, most) = used.await;
    (admitted * 100 < most * 99).then(|| format!("S1 guard: {admitted} of {most} admitted"))
}

async fn expiry(algorithm: &Algorithm, server: &Server, url: &str) -> Option<String> {
    let limiter = limiter(algorithm, url, None);
    let mut connection = server.connection().await;
    // The first call sends the text of the true script. It only peeks, so a mutant writes the key.
    let _ = limiter.check(&Charge::new("key").cost(0)).await.expect("a peek");
    for step in 0..700 {
        let charge = Charge::new("key").max_wait(Duration::from_secs(60));
        let decision = limiter.check(&charge).await.expect("a decision");
        let micros = |time: Option<Duration>| time.unwrap_or_default().as_micros() as i64;
        let old = micros(decision.decided_at()) + micros(decision.reset_after());
        let names: Vec<String> =
            redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
        for name in names {
            let end = expires(&mut connection, &name).await;
            if end < 0 || end * 1_000 < old {
                return Some(format!("expiry: step {step}, {end} ms for {old} us"));
            }
        }
        if decision.outcome() == Outcome::Allow && names_are_gone(&mut connection).await {
            return Some(format!("expiry: step {step}, gone at once"));
        }
    }
    None
}

async fn names_are_gone(connection: &mut redis::aio::MultiplexedConnection) -> bool {
    let size: usize = redis::cmd("DBSIZE").query_async(connection).await.expect("a number");
    size == 0
}

async fn corrupt(algorithm: &Algorithm, server: &Server, url: &str) -> Option<String> {
    let limiter = limiter(algorithm, url, None);
    let mut connection = server.connection().await;
    let _ = limiter.check(&Charge::new("key")).await.expect("a decision");
    let names: Vec<String> =
        redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
    for text in ["nan", "-nan", "inf", "-inf", "1e400", "0x10", " 5 ", "05", "--1", "1e3", ""] {
        let mut set = redis::cmd("SET");
        set.arg(&names[0]).arg(text).exec_async(&mut connection).await.expect("set");
        let kind = limiter.check(&Charge::new("key")).await.err().map(|error| error.kind());
        if kind != Some(ErrorKind::State) {
            return Some(format!("corrupt state: {text:?} is {kind:?}"));
        }
    }
    None
}

async fn clock(algorithm: &Algorithm, url: &str) -> Option<String> {
    const START: u64 = 1_767_225_600_000_000;
    let now = Arc::new(AtomicU64::new(START));
    let limiter = limiter(algorithm, url, Some(Arc::clone(&now)));
    let _ = limiter.check(&Charge::new("key")).await.expect("a decision");
    now.fetch_sub(86_400_000_000, Relaxed);
    let decision = limiter.check(&Charge::new("key")).await.expect("a decision");
    let locked = decision.retry_after().unwrap_or_default();
    // A capacity's time and a horizon.
    (locked > Duration::from_secs(62)).then(|| format!("clock: locked for {locked:?}"))
}

/// Both resets and all charges happen in one microsecond.
async fn reset(algorithm: &Algorithm, url: &str) -> Option<String> {
    // The begin of a day, and so of a cell of it.
    let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
    let limiter = limiter(algorithm, url, Some(Arc::clone(&now)));
    let key = Charge::new("key").cost(10);
    let take = async || limiter.check(&key).await.expect("a decision").into_reservation();
    let left =
        async || limiter.check(&Charge::new("key").peek()).await.expect("a peek").remaining();
    let mut old = Vec::new();
    for _ in 0..2 {
        old.extend(take().await);
        limiter.delete(&key).await.expect("a reset");
    }
    take().await.expect("room");
    let before = left().await;
    for reservation in old {
        let settlement = limiter.settle(reservation, 0).expect("its own");
        settlement.await.expect("a settlement");
        if left().await != before {
            return Some(format!("reset: {:?} left, and {before:?} before", left().await));
        }
    }
    let day = |hours: u64| Quota::new(50, Duration::from_secs(hours * 3_600));
    for hours in [24, 12] {
        let charge = Charge::new("tiers").quota(day(hours));
        if !limiter.check(&charge).await.expect("a decision").is_admitted() {
            return Some(format!("another quota: refused under {hours} hours"));
        }
    }
    None
}
