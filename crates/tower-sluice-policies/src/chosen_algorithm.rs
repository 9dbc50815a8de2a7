//! The algorithms that a row may name, and the choice of one.

use serde::Deserialize;
use tower_sluice::algorithm::AnyAlgorithm;
#[cfg(feature = "redisson")]
use tower_sluice_redisson::Rate;

/// The name of an algorithm. Default: a token bucket.
#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    #[default]
    TokenBucket,
    Budget,
    FixedWindow,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
    SmoothBursty,
    SmoothWarmingUp,
    Redisson,
}

/// The names as rows write them, in the order of [`Name`], each with the settings that only some
/// algorithms have.
pub(crate) const ALGORITHMS: [(&str, &[&str]); 9] = [
    ("token_bucket", &["burst", "max_debt"]),
    ("budget", &["burst", "max_debt", "max_hold"]),
    ("fixed_window", &["anchored"]),
    ("sliding_log", &["max_limit"]),
    ("sliding_window", &["cells"]),
    ("sliding_counter", &[]),
    ("smooth_bursty", &["burst", "max_debt", "max_burst", "start_empty", "wait_for_own_cost"]),
    ("smooth_warming_up", &["burst", "max_debt", "warm_up", "cold_factor", "wait_for_own_cost"]),
    ("redisson", &["burst", "rate_type", "keep_alive"]),
];

/// The kind of Java's limiter.
#[cfg(feature = "redisson")]
#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JavaRateType {
    #[default]
    Overall,
    PerClient,
}

/// The algorithm that decides about the keys of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Any(AnyAlgorithm),
    /// Java's limiter, on its own keys.
    #[cfg(feature = "redisson")]
    Redisson(Rate),
}

impl Choice {
    /// Returns true for Java's limiter, which decides separately from others.
    pub(crate) fn is_javas(self) -> bool {
        match self {
            Choice::Any(_) => false,
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => true,
        }
    }
}
