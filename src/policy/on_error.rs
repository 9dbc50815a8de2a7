//! The answer to requests while the store of a policy cannot decide.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, AnyAlgorithm, SlidingLog, SlidingWindow};
use crate::quota::QuotaError;
use crate::{Error, Quota};

/// The largest local share whose every charge is remembered.
const MAX_LOGGED_SHARE: u64 = 1_000;

/// The answer to a request while the store cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OnError {
    /// It is refused as undecided: over HTTP with 503. The default.
    #[default]
    Deny,
    /// It is admitted while Redis is away, as by [`FailOpen`](crate::FailOpen). No other error is
    /// covered.
    Allow,
    /// This process admits this number of units per period for each key, like
    /// [`or_else`](crate::LimiterExt::or_else) with another limiter. It covers all errors but
    /// invalid requests and foreign values: even a Redis that is full, or a password that changed.
    Local(u64),
}

impl OnError {
    /// Returns true if something else decides in place of a store with this error.
    pub(super) fn stands_in(self, error: &Error) -> bool {
        match self {
            Self::Deny => false,
            Self::Allow => error.kind().may_fail_open(),
            Self::Local(_) => error.kind().may_fall_back(),
        }
    }
}

/// Returns the algorithm of a local share, which admits at most `units` of a key in a period.
pub(super) fn share(units: u64, period: Duration) -> Result<AnyAlgorithm, QuotaError> {
    let quota = Quota::try_new(units, period)?;
    let share: AnyAlgorithm = match units {
        ..=MAX_LOGGED_SHARE => SlidingLog::new(quota).into(),
        _ => SlidingWindow::new(quota).cells(60).into(),
    };
    share.rule(quota).map(|_| share)
}
