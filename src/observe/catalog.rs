//! Every metric of the crate: name, type, unit, labels and description.

use metrics::Unit;

/// A family of metrics: see [`METRICS`]. Make your own for limiters of your own in the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The unit of its values.
    pub unit: Unit,
    /// The names of its labels. The values are configured names or come from short lists, so the
    /// number of series does not grow with the keys.
    pub labels: &'static [&'static str],
    /// The description.
    pub help: &'static str,
}

/// The type of a [`Metric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A count that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of values in buckets.
    Histogram,
}

use MetricKind::{Counter, Gauge, Histogram};

macro_rules! catalog {
    ($($id:ident: $kind:ident $unit:ident $labels:expr, $name:literal, $help:literal;)*) => {
        $(pub(crate) const $id: Metric = Metric {
            name: $name,
            kind: $kind,
            unit: Unit::$unit,
            labels: &$labels,
            help: $help,
        };)*

        /// Every metric of the crate, for example for a dashboard or its test.
        pub const METRICS: &[Metric] = &[$($id),*];
    };
}

catalog! {
    DECISIONS: Counter Count ["limiter", "outcome"], "rate_limit_decisions_total",
        "Charges by outcome: admitted, delayed, denied or undecided.";
    FAIL_OPEN: Counter Count ["limiter"], "rate_limit_fail_open_total",
        "Charges that FailOpen admitted, since no limiter could decide.";
    SWITCHED_OFF: Counter Count ["limiter"], "rate_limit_switched_off_total",
        "Charges that were admitted since the limiter is switched off.";
    SHADOW_REFUSALS: Counter Count ["limiter", "outcome"], "rate_limit_shadow_refusals_total",
        "Charges that a shadow admitted, by their outcome without it: denied, undecided, or invalid: undecided since the request itself was wrong.";
    FALLBACKS: Counter Count ["limiter"], "rate_limit_fallbacks_total",
        "Charges that a fallback decided, since their limiter could not.";
    ERRORS: Counter Count ["limiter", "kind"], "rate_limit_errors_total",
        "Errors of a limiter by kind, including those that a fallback or a shadow hides.";
    ABANDONED: Counter Count ["limiter"], "rate_limit_abandoned_total",
        "Charges whose caller left before the decision.";
    SETTLED_UNITS: Counter Count ["limiter", "units"], "rate_limit_settled_units_total",
        "Units of settled charges: charged, given back, lost since the limiter could not give them back, and used but not taken.";
    DECISION_SECONDS: Histogram Seconds ["limiter"], "rate_limit_decision_seconds",
        "Time until a decision, without reserved waits.";
    WAIT_SECONDS: Histogram Seconds ["limiter"], "rate_limit_wait_seconds",
        "Time that a delayed charge waits for its slot.";
    WAITERS: Gauge Count ["limiter"], "rate_limit_waiters",
        "Requests that wait for their slot now.";
    BREAKER_STATE: Gauge Count ["breaker"], "rate_limit_breaker_state",
        "State of a breaker: 0 asks, 1 probes, 2 refuses.";
    BREAKER_REFUSALS: Counter Count ["breaker"], "rate_limit_breaker_refusals_total",
        "Calls that a breaker refused.";
    CALL_SECONDS: Histogram Seconds ["limiter"], "rate_limit_call_seconds",
        "Time of a call to Redis that was answered.";
    UNANSWERED_CALLS: Counter Count ["limiter"], "rate_limit_unanswered_calls_total",
        "Calls to Redis that got no answer in time.";
    BATCH_SIZE: Histogram Count ["limiter"], "rate_limit_batch_size",
        "Charges and settlements in one call to Redis.";
    CONNECTS: Counter Count ["result"], "rate_limit_connects_total",
        "Attempts to connect to Redis, by result: made or failed.";
}

/// Bounds for the histograms in seconds: from 100 µs to 60 s, each about 2.5 times the bound
/// before.
///
/// Without bounds, metrics-exporter-prometheus makes summaries, which dashboards cannot add up.
///
/// The guide's page [metrics and alerts][page] sets them.
///
/// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/metrics_and_alerts/
pub const SECONDS_BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// Bounds for the sizes of batches: each is twice the bound before.
pub const BATCH_BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
