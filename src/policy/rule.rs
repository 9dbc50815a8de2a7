//! A policy: a row whose every field was checked.

use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::choice::Choice;
use super::cost::Cost;
use super::key::Key;
use super::on_error::OnError;
use super::pattern::{Matcher, Pattern};
use super::setting::Setting;
use crate::Quota;
use crate::algorithm::AnyAlgorithm;
use crate::http::Head;

/// A policy of the table in force. It serializes as a row that decides alike: with the defaults of
/// what every algorithm has, and with those settings of its own algorithm that its row states. A
/// `cache_ratio` becomes the `max_wait` that it means, and an interface a policy.
#[derive(Clone, Debug, Serialize)]
pub struct Policy {
    name: String,
    algorithm: &'static str,
    limit: u64,
    #[serde(serialize_with = "as_text")]
    period: Duration,
    /// The settings of its own algorithm.
    #[serde(flatten)]
    settings: Map<String, Value>,
    #[serde(serialize_with = "as_text")]
    max_wait: Duration,
    key: Key,
    #[serde(rename = "match")]
    pattern: Pattern,
    cost: Cost,
    on_error: OnError,
    enabled: bool,
    shadow: bool,
    #[serde(skip)]
    pub(super) choice: Choice,
    /// The algorithm of the local share, which decides while the store cannot, if the row sets it.
    #[serde(skip)]
    pub(super) share: Option<AnyAlgorithm>,
    #[serde(skip)]
    quota: Quota,
    #[serde(skip)]
    matcher: Matcher,
}

/// The fields of a row besides its name and its algorithm.
pub(super) struct Written {
    pub(super) key: Key,
    pub(super) pattern: Pattern,
    pub(super) cost: Cost,
    pub(super) on_error: OnError,
    pub(super) share: Option<AnyAlgorithm>,
    pub(super) enabled: bool,
    pub(super) shadow: bool,
    pub(super) settings: Map<String, Value>,
}

impl Policy {
    pub(super) fn new(name: String, setting: Setting, matcher: Matcher, written: Written) -> Self {
        let Written { key, pattern, cost, on_error, share, enabled, shadow, settings } = written;
        let Setting { name: algorithm, quota, choice, max_wait } = setting;
        let (limit, period) = (quota.limit(), quota.period());
        Self {
            name,
            algorithm,
            limit,
            period,
            settings,
            max_wait,
            key,
            pattern,
            cost,
            on_error,
            enabled,
            shadow,
            choice,
            share,
            quota,
            matcher,
        }
    }

    /// The name of the policy, which is a part of its keys too.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its algorithm, as a row writes it.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        self.algorithm
    }

    /// Its quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The longest wait that it reserves for a request.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// Returns the answer to a request while the store cannot decide.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Returns true if its row turns it on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns true if its row puts it into a shadow.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns true if both decide alike about a key, whatever requests they take.
    pub(super) fn decides_as(&self, other: &Self) -> bool {
        self.choice == other.choice
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    pub(super) fn matcher_mut(&mut self) -> &mut Matcher {
        &mut self.matcher
    }

    /// The units that a request costs.
    pub(super) fn cost_of(&self, head: &Head<'_>) -> u64 {
        self.cost.of_request(head)
    }
}

fn as_text<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}
