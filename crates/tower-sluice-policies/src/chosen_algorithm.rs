//! The algorithms that a row may name, and the choice of one.

use serde::Deserialize;
use tower_sluice::algorithm::AnyAlgorithm;
#[cfg(feature = "redisson")]
use tower_sluice_redisson::Rate;

macro_rules! algorithms {
    ($($(#[$meta:meta])* $name:ident = $text:literal with $own:expr),+ $(,)?) => {
        /// The name of an algorithm. Default: a token bucket.
        #[derive(Clone, Copy, Default, PartialEq, Deserialize)]
        pub(crate) enum Name {
            $($(#[$meta])* #[serde(rename = $text)] $name),+
        }

        impl Name {
            /// The settings that only some algorithms have.
            pub(crate) const OWN: &[&[&str]] = &[$(&$own),+];

            /// Returns the name as rows write it, and the settings of this algorithm that only some
            /// have.
            pub(crate) fn written(self) -> (&'static str, &'static [&'static str]) {
                match self {
                    $(Self::$name => ($text, &$own)),+
                }
            }
        }
    };
}

// The name as rows write it, and the settings that only some algorithms have.
algorithms!(
    #[default]
    TokenBucket = "token_bucket" with ["burst", "max_debt"],
    Budget = "budget" with ["burst", "max_debt", "max_hold"],
    Concurrency = "concurrency" with ["max_hold"],
    FixedWindow = "fixed_window"
        with ["anchored", "calendar", "time_zone", "week_begins", "month_begins"],
    SlidingLog = "sliding_log" with ["max_limit"],
    SlidingWindow = "sliding_window" with ["cells"],
    SlidingCounter = "sliding_counter" with [],
    SmoothBursty = "smooth_bursty"
        with ["burst", "max_debt", "max_burst", "start_empty", "wait_for_own_cost"],
    SmoothWarmingUp = "smooth_warming_up"
        with ["burst", "max_debt", "warm_up", "cold_factor", "wait_for_own_cost"],
    Redisson = "redisson" with ["burst", "rate_type", "keep_alive"],
);

/// The windows of a calendar.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CalendarSpan {
    Day,
    Week,
    Month,
    Year,
}

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
