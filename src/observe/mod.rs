//! Metrics and events for operators, with the features `metrics` and `tracing`.
//!
//! [`MetricsExt::metrics`](crate::limiter::MetricsExt::metrics) counts the decisions of a limiter,
//! and [`TraceExt::trace`](crate::limiter::TraceExt::trace) makes an event of each. The crate also
//! reports calls to Redis, connections and breakers. The page [metrics and
//! alerts][page] lists each metric and each event.
//!
//! [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/metrics_and_alerts/

// `catalog.rs` lists the metrics. `meter.rs` counts under the name of a limiter, and
// `policy_series.rs` under the name of each policy. `limiter_handles.rs` has all counts of one
// name, and `recorder.rs` looks up handles. `tracer.rs` makes the events of `events.rs`, and
// `seldom.rs` limits how often an event repeats. `recorded_outcome.rs` turns a result into the
// outcome that counts. The rest of the crate reports to `watches.rs`, which does nothing without
// the two features.

#[cfg(feature = "metrics")]
mod catalog;
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are nothing"))]
mod events;
#[cfg(feature = "metrics")]
mod limiter_handles;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(feature = "metrics")]
mod policy_series;
mod recorded_outcome;
#[cfg(feature = "metrics")]
mod recorder;
mod seldom;
#[cfg(feature = "tracing")]
mod tracer;
mod watches;

// The unit of a `Metric`.
#[cfg(feature = "metrics")]
pub use ::metrics::Unit;

#[cfg(feature = "metrics")]
pub use self::catalog::{BATCH_BUCKETS, METRICS, Metric, MetricKind, SECONDS_BUCKETS};

pub(crate) use self::events::{primary_changed, slots_moved};
#[cfg(feature = "metrics")]
pub use self::meter::Meter;
#[cfg(feature = "metrics")]
pub(crate) use self::policy_series::PolicySeries;
pub(crate) use self::recorded_outcome::AskedCharge;
pub(crate) use self::watches::{
    BreakerWatch, CallWatch, ConnectionWatch, FallbackWatch, RefusalWatch,
};
#[cfg(feature = "tracing")]
pub(crate) use self::{events::shows_decisions, tracer::Tracer};
