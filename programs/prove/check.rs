//! A proof under way: what every check needs, and the rows so far.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::{JoinError, JoinSet};
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
    /// The folder of the traces.
    pub(crate) folder: PathBuf,
    pub(crate) bar: ProgressBar,
    rows: Mutex<Vec<Row>>,
}

impl Proof {
    pub(crate) fn new(
        options: Options,
        access: Access,
        connections: Result<Connections, String>,
        met: Met,
        folder: PathBuf,
    ) -> Self {
        let prefix = format!("{}:prove-{:08x}", options.prefix, fastrand::u32(..));
        let checks = ALGORITHMS.len() + TWINS.len() + 21;
        let bar = ProgressBar::new(checks as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.expect("a template"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let (cleaner, rows) = (Cleaner::default(), Mutex::default());
        Self { options, access, connections, met, prefix, cleaner, folder, bar, rows }
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
            Err(error) => ended_early(name, words(error)),
        };
        self.add(row);
    }
}

/// The message of the panic that ended a task.
pub(crate) fn words(error: JoinError) -> String {
    let said = error.to_string();
    let Ok(payload) = error.try_into_panic() else { return said };
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn panics(why: &str) {
        panic!("{why}");
    }

    /// The row of a check whose task panics with these words.
    async fn ended(why: &'static str) -> Row {
        let error = tokio::spawn(async move { panics(why) }).await.expect_err("a panic");
        ended_early("a check", words(error))
    }

    #[tokio::test]
    async fn a_check_has_the_words_of_its_own_panic() {
        // The tasks of another check panic, too, after its row is made.
        let row = ended("kind: Infrastructure").await;
        assert!(matches!(row.result, table::Result::Lost(_)), "{row:?}");
        assert!(tokio::spawn(async { panics("kind: Infrastructure") }).await.is_err());
        let row = ended("the reply differs").await;
        let table::Result::Broken(why) = &row.result else { panic!("{row:?}") };
        assert!(why.contains("the reply differs"), "{why}");
    }
}
