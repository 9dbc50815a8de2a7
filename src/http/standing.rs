//! The numbers of the header fields, in whole units and seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::headers::RateLimitHeaders;
use crate::core::decision::PolicyReport;
use crate::core::{Decision, Outcome};

/// The largest integer of a structured field (RFC 9651). The other styles keep the same limit.
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The state of a caller under one policy, as numbers of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
    /// True if `t` states `reset`. False if nothing is taken, or if a refused charge can never fit.
    pub(super) has_reset: bool,
}

impl RateLimitHeaders {
    /// Returns the state under a policy. `None` if the limiter does not report the units that are
    /// left, or the policy that refuses.
    pub(super) fn standing(
        &self,
        decision: &Decision,
        policy: &PolicyReport<'_>,
    ) -> Option<Standing> {
        if policy.is_admitted() && !decision.is_admitted() {
            return None;
        }
        let limit = policy.quota().burst_size().min(MAX_INTEGER);
        let remaining = policy.remaining()?.min(limit);
        // No time brings back what runs at once.
        let is_timed = !policy.quota().period().is_zero();
        let is_full = remaining == limit || !is_timed;
        // This caller leaves some of them to others.
        let remaining = remaining.saturating_sub(policy.kept_free());
        // The response is sent after the reserved wait.
        let full_in = policy.reset_after().map(|time| time.saturating_sub(reserved(decision)));
        let (reset, has_reset) = match (decision.is_admitted(), until_retry(decision)) {
            (false, Some(wait)) => (whole_seconds(wait), is_timed),
            _ if is_full => (0, false),
            (false, None) => (full_in.map_or(0, whole_seconds), false),
            (true, _) => (self.capped(full_in.map(whole_seconds)?, remaining, policy), true),
        };
        let reset = reset.min(MAX_INTEGER);
        Some(Standing { limit, remaining, reset, has_reset })
    }

    /// Raises a reset so that the remaining units, spread over it, keep to the rate of the policy.
    fn capped(&self, reset: u64, remaining: u64, policy: &PolicyReport<'_>) -> u64 {
        if !self.caps_rate {
            return reset;
        }
        let window = policy.window().as_micros() * u128::from(remaining);
        let paced = window.div_ceil(u128::from(policy.quota().burst_size()) * 1_000_000);
        reset.max(u64::try_from(paced).unwrap_or(u64::MAX))
    }
}

/// The shortest wait that nobody waits for: that of a block without an end.
const ENDLESS: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Returns the time after which a denied caller may retry. `None` if there is none.
pub(super) fn until_retry(decision: &Decision) -> Option<Duration> {
    decision.retry_after().filter(|wait| *wait < ENDLESS)
}

/// Rounds a time for `Retry-After` and the resets: up to whole seconds, never 0.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    let whole = time.as_secs();
    whole.saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}

fn reserved(decision: &Decision) -> Duration {
    match decision.outcome() {
        Outcome::Wait(wait) => wait,
        _ => Duration::ZERO,
    }
}

/// Returns the second of the Unix epoch that is `reset` seconds after the response, by the clock of
/// the decision. The response is sent after the reserved wait.
pub(super) fn epoch(decision: &Decision, reset: u64) -> u64 {
    let leaves = match decision.decided_at() {
        Some(decided_at) => decided_at.saturating_add(decision.age() + reserved(decision)),
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    };
    whole_seconds(leaves.saturating_add(Duration::from_secs(reset)))
}

#[cfg(test)]
mod tests;
