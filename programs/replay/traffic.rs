//! The lines of the input and of the output.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_sluice::algorithm::QuotaError;
use tower_sluice::{Decision, Outcome, Quota};

/// One line of traffic. Times are in µs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line<'a> {
    pub(crate) t: u64,
    #[serde(borrow)]
    pub(crate) key: Option<Cow<'a, str>>,
    pub(crate) cost: Option<u64>,
    pub(crate) max_wait: Option<u64>,
    /// The units that stay free after the charge.
    #[serde(default)]
    pub(crate) keep_free: u64,
    limit: Option<u64>,
    pub(crate) period: Option<u64>,
    pub(crate) burst: Option<u64>,
    #[serde(default)]
    pub(crate) op: Op,
    /// The line, counted from 1, whose charge is refunded, settled or renewed.
    pub(crate) of: Option<usize>,
    /// The units that it used in the end.
    pub(crate) used: Option<u64>,
    /// How long the key is blocked or paused.
    pub(crate) time: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    #[default]
    Check,
    Peek,
    Refund,
    Settle,
    Renew,
    Penalize,
    Grant,
    Reset,
    Block,
    Pause,
    Unblock,
    /// redisson: releases permits, whichever line took them.
    Release,
    /// redisson: returns how many are left.
    Available,
}

impl Line<'_> {
    /// The quota of this line. What it leaves out is as in `common`.
    pub(crate) fn quota(&self, common: Quota) -> Result<Option<Quota>, QuotaError> {
        if self.limit.or(self.period).or(self.burst).is_none() {
            return Ok(None);
        }
        let limit = self.limit.unwrap_or(common.limit());
        if common.period().is_zero() {
            return Quota::try_at_once(limit).map(Some);
        }
        let period = self.period.map_or(common.period(), Duration::from_micros);
        let burst = self.burst.or(self.limit).unwrap_or(common.burst_size());
        Quota::try_new(limit, period)?.try_burst(burst).map(Some)
    }
}

/// The result of a line.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) line: usize,
    /// Absent of a settlement and of a renewal.
    #[serde(skip_serializing_if = "Verdict::is_settled")]
    pub(crate) verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refunded: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) given_back: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed: Option<bool>,
    remaining: Option<u64>,
    reset_after_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Allow,
    Wait,
    Deny,
    Never,
    Error,
    Done,
    Settled,
}

impl Verdict {
    fn is_settled(&self) -> bool {
        *self == Self::Settled
    }
}

impl Told {
    pub(crate) fn decided(line: usize, decision: &Decision) -> Self {
        let (verdict, wait, retry_after) = match decision.outcome() {
            Outcome::Allow => (Verdict::Allow, Some(Duration::ZERO), None),
            Outcome::Wait(wait) => (Verdict::Wait, Some(wait), None),
            Outcome::Deny { retry_after: None } => (Verdict::Never, None, None),
            _ => (Verdict::Deny, None, decision.retry_after()),
        };
        Self {
            line,
            verdict,
            wait_us: wait.map(micros),
            retry_after_us: retry_after.map(micros),
            refunded: None,
            given_back: None,
            renewed: None,
            remaining: decision.remaining(),
            reset_after_us: decision.reset_after().map(micros),
            error: None,
        }
    }

    /// A refund, and the state of the key afterwards.
    pub(crate) fn refunded(line: usize, units: u64, since: &Decision) -> Self {
        Self { refunded: Some(units), ..Self::done(line, since) }
    }

    /// A settlement, and the state of the key afterwards.
    pub(crate) fn settled(line: usize, units: u64, since: &Decision) -> Self {
        Self { verdict: Verdict::Settled, given_back: Some(units), ..Self::done(line, since) }
    }

    /// A renewal, and the state of the key afterwards.
    pub(crate) fn renewed(line: usize, is_held: bool, since: &Decision) -> Self {
        Self { verdict: Verdict::Settled, renewed: Some(is_held), ..Self::done(line, since) }
    }

    /// An operation without a decision, and the state of the key afterwards.
    pub(crate) fn done(line: usize, since: &Decision) -> Self {
        let told = Self::decided(line, since);
        Self { verdict: Verdict::Done, wait_us: None, retry_after_us: None, ..told }
    }

    pub(crate) fn error(line: usize, error: String) -> Self {
        Self {
            line,
            verdict: Verdict::Error,
            wait_us: None,
            retry_after_us: None,
            refunded: None,
            given_back: None,
            renewed: None,
            remaining: None,
            reset_after_us: None,
            error: Some(error),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
