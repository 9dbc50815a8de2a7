//! The metrics and events of a limiter, as an operator sees them. Time is paused.

#[cfg(feature = "tracing")]
mod events;
mod fallback_cause;
mod inspect;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod keyless;
#[cfg(feature = "metrics")]
mod members;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(feature = "redis", feature = "metrics", feature = "tracing"))]
mod over_redis;
#[cfg(feature = "metrics")]
mod pages;
#[cfg(feature = "metrics")]
mod recorder;

use std::time::Duration;

use tower_sluice::Charge;

const SECOND: Duration = Duration::from_secs(1);

fn one() -> Charge {
    Charge::new("key")
}
