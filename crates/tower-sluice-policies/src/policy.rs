//! A policy: a row whose fields were all checked. Also its answer to errors.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, Concurrency, QuotaError, SlidingLog, SlidingWindow,
};
use tower_sluice::{Error, ErrorKind, Quota};

use super::bans::BanRow;
use super::chosen_algorithm::Choice;
use super::pattern::{Matcher, Pattern};
use super::plans::Plans;
use super::policy_cost::PolicyCost;
use super::policy_key::PolicyKey;

/// A policy of the table in force. It serializes as a row with the same decisions. The row has the
/// defaults of the common fields, and the algorithm's settings that the original row states. A
/// `cache_ratio` becomes a `max_wait`, and an interface becomes a policy.
#[derive(Clone, Debug, Serialize)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) algorithm: &'static str,
    pub(crate) limit: u64,
    #[serde(serialize_with = "as_text", skip_serializing_if = "Duration::is_zero")]
    pub(crate) period: Duration,
    /// The settings that only its algorithm has.
    #[serde(flatten)]
    pub(crate) settings: Map<String, Value>,
    #[serde(serialize_with = "as_text")]
    pub(crate) max_wait: Duration,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) keep_free: u64,
    pub(crate) key: PolicyKey,
    #[serde(rename = "match")]
    pub(crate) pattern: Pattern,
    pub(crate) cost: PolicyCost,
    pub(crate) on_error: OnError,
    pub(crate) enabled: bool,
    pub(crate) shadow: bool,
    #[serde(skip)]
    pub(crate) choice: Choice,
    /// The algorithm of the local share, if the row sets one: it decides while the store cannot.
    #[serde(skip)]
    pub(crate) share: Option<AnyAlgorithm>,
    #[serde(skip)]
    pub(crate) quota: Quota,
    #[serde(skip)]
    pub(crate) plans: Plans,
    #[serde(skip)]
    pub(crate) ban: Option<BanRow>,
    #[serde(skip)]
    pub(crate) matcher: Matcher,
}

impl Policy {
    /// The name of the policy, which is also a part of its keys.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its algorithm, as rows write it.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        self.algorithm
    }

    /// The algorithm with its quota and its settings. `None` for Java's limiter.
    #[must_use]
    pub fn chosen_algorithm(&self) -> Option<AnyAlgorithm> {
        match self.choice {
            Choice::Any(algorithm) => Some(algorithm),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => None,
        }
    }

    /// The quota of requests without a plan of the row's `quotas`.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The longest wait that it reserves for a request.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// The units that each request [leaves free](tower_sluice::Charge::keep_free).
    #[must_use]
    pub fn keep_free(&self) -> u64 {
        self.keep_free
    }

    /// Returns the answer to a request while the store cannot decide.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Returns true unless its row disables it.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns true if its row puts it into a shadow.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(units: &u64) -> bool {
    *units == 0
}

fn as_text<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// The largest local share for which every charge is remembered.
const MAX_LOGGED_SHARE: u64 = 1_000;

/// The answer to a request while the store cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OnError {
    /// The request is refused as undecided: over HTTP with 503. The default.
    #[default]
    Deny,
    /// The request is admitted while Redis is away, as [`FailOpen`](tower_sluice::FailOpen) does.
    /// For other errors it is refused.
    Allow,
    /// This process admits this number of units per period for each key, like
    /// [`or_else`](tower_sluice::LimiterExt::or_else) with another limiter. It covers all errors
    /// except invalid requests and foreign values. So it also covers a full Redis, or a changed
    /// password. A request that costs more is refused as undecided.
    Local(u64),
}

impl OnError {
    /// Returns true if this setting decides in place of a store with this error.
    pub(crate) fn stands_in(self, error: &Error) -> bool {
        match self {
            Self::Deny => false,
            Self::Allow => error.kind() == ErrorKind::Infrastructure,
            Self::Local(_) => !matches!(error.kind(), ErrorKind::Request | ErrorKind::State),
        }
    }
}

/// Returns the algorithm of a local share, which admits at most `units` for each key in a period.
/// If the period is 0, it admits them at the same time.
pub(crate) fn share(units: u64, period: Duration) -> Result<AnyAlgorithm, QuotaError> {
    if period.is_zero() {
        return Ok(Concurrency::of(Quota::try_at_once(units)?).into());
    }
    let quota = Quota::try_new(units, period)?;
    let share: AnyAlgorithm = match units {
        ..=MAX_LOGGED_SHARE => SlidingLog::new(quota).into(),
        _ => SlidingWindow::new(quota).cells(60).into(),
    };
    share.rule(quota).map(|_| share)
}
