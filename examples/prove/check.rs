//! A proof under way: what every check needs, and the rows so far.

use std::future::Future;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tower_sluice::{Charge, Error, ErrorKind, Pool};

use support::trial::algorithms::{ALGORITHMS, Algorithm, Site};
use support::trial::twins::TWINS;
use support::trial::workload::Workload;

use crate::access::{Access, Connections};
use crate::cleaner::Cleaner;
use crate::met::Met;
use crate::options::Options;
use crate::table::Row;

pub(crate) struct Proof {
    pub(crate) options: Options,
    pub(crate) access: Access,
    /// Connections beside the crate's own, or why there are none.
    pub(crate) connections: Result<Connections, String>,
    pub(crate) met: Met,
    /// The begin of all keys: no other run has it.
    pub(crate) prefix: String,
    pub(crate) cleaner: Cleaner,
    pub(crate) bar: ProgressBar,
    rows: Mutex<Vec<Row>>,
}

/// The last words of a check that panicked.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps the message of a panic for the table, and prints nothing.
pub(crate) fn keep_panics() {
    panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let words = text.unwrap_or("a panic").to_owned();
        let mut first = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that follow say less: a task that another one waits for.
        if first.is_empty() {
            *first = words;
        }
    }));
}

impl Proof {
    pub(crate) fn new(
        options: Options,
        access: Access,
        connections: Result<Connections, String>,
        met: Met,
    ) -> Self {
        let prefix = format!("{}:prove-{:08x}", options.prefix, fastrand::u32(..));
        let checks = ALGORITHMS.len() + TWINS.len() + 21;
        let bar = ProgressBar::new(checks as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.expect("a template"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let (cleaner, rows) = (Cleaner::default(), Mutex::default());
        Self { options, access, connections, met, prefix, cleaner, bar, rows }
    }

    pub(crate) fn add(&self, row: Row) {
        self.bar.inc(1);
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The prefix of one check.
    pub(crate) fn prefix_of(&self, check: &str) -> String {
        format!("{}:{}", self.prefix, check.replace(' ', "-"))
    }

    /// A pool whose limiters have keys that only this check uses.
    pub(crate) fn pool(&self, check: &str) -> Result<Pool, String> {
        Ok(self.access.patient_pool()?.prefix(self.prefix_of(check)))
    }

    /// The algorithms that were asked for.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(|algorithm| algorithm.name.starts_with(&self.options.only))
    }

    /// Why an algorithm cannot be checked on this server, if it cannot.
    pub(crate) async fn obstacle(&self, algorithm: &Algorithm) -> Option<String> {
        let prefix = self.prefix_of(&format!("first-{}", algorithm.name));
        let site = match self.access.patient_pool() {
            Ok(pool) => Site::under(&prefix, pool),
            Err(why) => return Some(why),
        };
        let limiter = (algorithm.limiter)(Workload::Saturating.quota(algorithm.quota), site);
        self.cleaner.owe_judged(&limiter, [0]);
        let answer = limiter.check(&Charge::new("0")).await;
        answer.err().as_ref().and_then(obstacle)
    }

    /// Runs a check. If it panics, the promise is broken.
    pub(crate) async fn run<F>(&self, name: &str, check: F)
    where
        F: Future<Output = Row> + Send + 'static,
    {
        self.bar.set_message(name.to_owned());
        // Aborted when it is dropped, as after Ctrl-C.
        let mut task = JoinSet::new();
        task.spawn(check);
        let row = match task.join_next().await.expect("a check") {
            Ok(row) => row,
            Err(_) => panicked(name),
        };
        self.add(row);
    }
}

/// The row of a check that ended by a panic.
pub(crate) fn panicked(name: &str) -> Row {
    let words = std::mem::take(&mut *PANIC.lock().unwrap_or_else(PoisonError::into_inner));
    ended_early(name, words)
}

/// The row of a check that ended early for some reason. If a call had no answer, no promise is
/// broken, and nothing is proven.
pub(crate) fn ended_early(name: &str, why: String) -> Row {
    match was_lost(&why) {
        true => Row::lost(name, format!("a call had no answer: {why}")),
        false => Row::judged(name, "ended early", &[why]),
    }
}

/// Returns true if these words are about a call without an answer.
pub(crate) fn was_lost(why: &str) -> bool {
    ["kind: Infrastructure", "kind: Saturation"].iter().any(|kind| why.contains(kind))
}

/// Why a check is not possible here, if this error says so: rights, or the kind of server.
pub(crate) fn obstacle(error: &Error) -> Option<String> {
    (error.kind() == ErrorKind::Configuration).then(|| format!("{error:#}"))
}

/// The proof as checks share it.
pub(crate) type Shared = Arc<Proof>;
