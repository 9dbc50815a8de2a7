//! A policy: a row whose fields were all checked. Also its cost, and its answer to errors.

use std::time::Duration;

use http::HeaderName;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, Concurrency, QuotaError, SlidingLog, SlidingWindow,
};
use tower_sluice::key::Head;
use tower_sluice::{Error, ErrorKind, Quota};

use super::chosen_algorithm::Choice;
use super::pattern::{Matcher, Pattern};
use super::plans::Plans;
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

/// The bytes of a unit if the length of a body is the cost.
const KB: u64 = 1_024;

/// The largest cost. It is above every capacity, so a request of this cost can never pass.
const MAX_COST: u64 = 1 << 53;

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum PolicyCost {
    /// The length of its body in units of 1,024 bytes, rounded up, at least 1.
    ContentLengthKb,
    /// The number in a header, and the cost of requests without a valid one. `None`: they are
    /// refused.
    RequestHeader {
        name: HeaderName,
        default: Option<u64>,
    },
    Units(u64),
}

impl PolicyCost {
    /// Returns the units that a request costs.
    ///
    /// # Errors
    ///
    /// If a header should state it, and does not.
    pub(crate) fn of_request(&self, head: &Head<'_>) -> Result<u64, Error> {
        Ok(match self {
            Self::Units(units) => *units,
            Self::ContentLengthKb => {
                let length = head.headers().get(http::header::CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok());
                let bytes = length.and_then(|length| length.trim().parse::<u64>().ok());
                bytes.unwrap_or(0).div_ceil(KB).clamp(1, MAX_COST)
            }
            Self::RequestHeader { name, default } => {
                let stated = head.header(name.as_str()).and_then(|text| cost(&text));
                stated.or(*default).ok_or_else(|| {
                    let why = format!("request has no valid cost in the header `{name}`");
                    Error::new(ErrorKind::Request, why)
                })?
            }
        })
    }
}

/// Reads a cost of at least 1. A cost above all others is read as one that never passes.
fn cost(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let units = text.parse().unwrap_or(u64::MAX).min(MAX_COST);
    Some(units).filter(|units| is_number && *units > 0)
}

impl TryFrom<Value> for PolicyCost {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let header = |name: &str, default| {
            let wrong = |_| format!("{name:?} is not a header name");
            Ok(Self::RequestHeader { name: name.trim().parse().map_err(wrong)?, default })
        };
        let units = |value: &Value| match value.as_u64() {
            Some(0) => Some(Err(String::from("a cost must be at least 1"))),
            Some(units) if units > MAX_COST => {
                Some(Err(String::from("a cost must be at most 2^53")))
            }
            units => units.map(Ok),
        };
        if let Some(units) = units(&value) {
            return units.map(Self::Units);
        }
        let text = value.as_str().unwrap_or_default();
        if text == "content_length_kb" {
            return Ok(Self::ContentLengthKb);
        }
        if let Some(name) = text.strip_prefix("request_header:") {
            return header(name, None);
        }
        let field = |name: &str| value.get(name);
        if let (Some(name), Some(default)) = (field("request_header"), field("default"))
            && value.as_object().is_some_and(|table| table.len() == 2)
        {
            let none = || Err(String::from("the default of a cost is not a number"));
            let default = units(default).unwrap_or_else(none)?;
            return header(name.as_str().unwrap_or_default(), Some(default));
        }
        Err(format!(
            "{value} is not a cost: write a number, `content_length_kb`, `request_header:NAME`, or {{ request_header = NAME, default = n }}"
        ))
    }
}

impl Serialize for PolicyCost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Units(units) => serializer.serialize_u64(*units),
            Self::ContentLengthKb => serializer.serialize_str("content_length_kb"),
            Self::RequestHeader { name, default: None } => {
                serializer.collect_str(&format_args!("request_header:{name}"))
            }
            Self::RequestHeader { name, default: Some(units) } => {
                let table =
                    [("request_header", name.as_str().into()), ("default", (*units).into())];
                serializer.collect_map::<_, Value, _>(table)
            }
        }
    }
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
