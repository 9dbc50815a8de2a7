//! The reports of tables to metrics and events: the features `metrics` and `tracing`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use tower_sluice::key::Head;

#[cfg(feature = "metrics")]
use tower_sluice::observe::{Metric, MetricKind};
#[cfg(feature = "tracing")]
use tracing::{info, warn};

/// The target of all events of tables.
#[cfg(feature = "tracing")]
const POLICIES: &str = "tower_sluice::policies";

/// Every metric of policies, besides those of limiters.
#[cfg(feature = "metrics")]
pub const METRICS: &[Metric] = &[UNMATCHED];

#[cfg(feature = "metrics")]
const UNMATCHED: Metric = Metric {
    name: "rate_limit_unmatched_total",
    kind: MetricKind::Counter,
    unit: metrics::Unit::Count,
    labels: &[],
    help: "Requests that no policy of a table took.",
};

/// The number of requests after which a table that took none of them is reported.
const FIRST_REQUESTS: usize = 1_000;

/// The shortest time between two examples of requests that no row takes.
const MINUTE: Duration = Duration::from_secs(60);

/// The longest path that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// A closure that receives the path of a request that no row takes, and the number of such requests
/// since the last one that it received.
pub(crate) type OnUnmatched = dyn Fn(&str, u64) + Send + Sync;

/// Shows one of the requests that no row takes, at most one a minute.
#[derive(Debug, Default)]
pub(crate) struct Unmatched {
    requests: AtomicU64,
    shown: Mutex<Option<Instant>>,
}

impl Unmatched {
    /// Reports a request that no row takes.
    pub(crate) fn saw(&self, head: &Head<'_>, show: Option<&OnUnmatched>) {
        if show.is_none() && cfg!(not(feature = "tracing")) {
            return;
        }
        self.requests.fetch_add(1, Relaxed);
        {
            // Another request that comes at this moment is not shown.
            let Ok(mut shown) = self.shown.try_lock() else { return };
            if shown.is_some_and(|at| at.elapsed() < MINUTE) {
                return;
            }
            *shown = Some(Instant::now());
        }
        let requests = self.requests.swap(0, Relaxed);
        let path: String = head.original_uri().path().chars().take(MAX_SHOWN).collect();
        #[cfg(feature = "tracing")]
        info!(target: POLICIES, path = path.as_str(), requests, "no policy took a request");
        if let Some(show) = show {
            show(&path, requests);
        }
    }
}

/// Emits that a table is in force, with the numbers of its policies.
#[cfg(feature = "tracing")]
pub(crate) fn table_in_force([on, shadow, off]: [usize; 3]) {
    let policies = on + shadow + off;
    if on > 0 {
        info!(target: POLICIES, policies, on, shadow, off, "policies are in force");
    } else {
        warn!(target: POLICIES, policies, on, shadow, off, "no policy limits anything");
    }
}

/// Counts the requests that no policy of a table takes, and warns once of a table that takes none.
#[derive(Debug, Default)]
pub(crate) struct TableWatch {
    /// The number of requests that were not taken, or of none any more.
    seen: AtomicUsize,
}

impl TableWatch {
    /// Reports a request of a table with this number of policies.
    pub(crate) fn selected(&self, policies: usize, is_unmatched: bool) {
        let is_new = self.seen.load(Relaxed) < FIRST_REQUESTS;
        if !is_unmatched {
            if is_new {
                self.seen.store(FIRST_REQUESTS, Relaxed);
            }
            return;
        }
        #[cfg(feature = "metrics")]
        {
            if is_new {
                metrics::describe_counter!(UNMATCHED.name, UNMATCHED.unit, UNMATCHED.help);
            }
            metrics::counter!(UNMATCHED.name).increment(1);
        }
        if is_new && self.seen.fetch_add(1, Relaxed) == FIRST_REQUESTS - 1 && policies > 0 {
            #[cfg(feature = "tracing")]
            warn!(
                target: POLICIES,
                policies,
                requests = FIRST_REQUESTS,
                "no policy took any of the first requests"
            );
        }
    }
}
