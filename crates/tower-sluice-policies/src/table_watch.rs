//! The reports of tables to metrics and events: the features `metrics` and `tracing`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
