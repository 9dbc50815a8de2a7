//! Metrics and events for operators, with the features `metrics` and `tracing`.
//!
//! [`MetricsExt::metrics`](crate::limiter::MetricsExt::metrics) counts the decisions of a limiter,
//! and [`TraceExt::trace`](crate::limiter::TraceExt::trace) makes an event of each. The crate also
//! reports calls to Redis, connections and breakers. The page [metrics and
//! alerts](crate::guide::metrics_and_alerts) lists each metric and each event.

// `catalog.rs` lists the metrics. `series.rs` has all counts of one name. `meter.rs` counts under
// the name of a limiter, and `policy_series.rs` under the name of each policy. `recorder.rs` looks
// up handles. `tracer.rs` makes the events of `events.rs`, and `seldom.rs` limits how often an
// event repeats. `recorded_outcome.rs` turns a result into the outcome that counts. The rest of
// the crate reports to `watches.rs`, which does nothing without the two features.

#[cfg(feature = "metrics")]
mod catalog;
#[cfg_attr(
    not(all(feature = "tracing", feature = "redis", feature = "policies")),
    allow(unused, reason = "events of what is not built")
)]
mod events;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(feature = "metrics")]
mod policy_series;
#[cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused, reason = "each of the two counts other parts of it")
)]
mod recorded_outcome;
#[cfg(feature = "metrics")]
mod recorder;
mod seldom;
#[cfg(feature = "metrics")]
mod series;
#[cfg(feature = "tracing")]
mod tracer;
#[cfg_attr(not(feature = "redis"), allow(unused, reason = "watches of what is not built"))]
mod watches;

// The unit of a `Metric`.
#[cfg(feature = "metrics")]
pub use ::metrics::Unit;

#[cfg(feature = "metrics")]
pub use self::catalog::{BATCH_BUCKETS, METRICS, Metric, MetricKind, SECONDS_BUCKETS};

#[cfg(feature = "redis")]
pub(crate) use self::events::primary_changed;
#[cfg(feature = "policies")]
pub(crate) use self::events::table_in_force;
#[cfg(feature = "metrics")]
pub use self::meter::Meter;
#[cfg(feature = "metrics")]
pub(crate) use self::policy_series::PolicySeries;
#[cfg(any(feature = "metrics", feature = "policies", feature = "tracing"))]
pub(crate) use self::recorded_outcome::Asked;
#[cfg(feature = "policies")]
pub(crate) use self::recorded_outcome::RecordedOutcome;
#[cfg(feature = "tracing")]
pub(crate) use self::tracer::Tracer;
pub(crate) use self::watches::{BreakerWatch, FallbackWatch, RefusalWatch, State as WatchedState};
#[cfg(feature = "redis")]
pub(crate) use self::watches::{CallWatch, ConnectionWatch, SlotWatch};
