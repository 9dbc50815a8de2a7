//! Writes what a decision says into the fields of a response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::headers::{HeaderStyle, OnAdmitted, RateLimitHeaders};
use super::structured;
use crate::{Decision, Origin, Outcome, PolicyReport};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const DRAFT_06: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// How a caller stands under one policy, in numbers of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The index of the policy.
    pub(super) index: usize,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// In seconds.
    pub(super) reset: u64,
    /// Whether `reset` says more than that nothing is taken.
    pub(super) has_reset: bool,
}

impl RateLimitHeaders {
    /// Adds the fields to the response of an admitted request, if it is to have them.
    pub(super) fn write_admitted(
        &self,
        decision: &Decision,
        is_redirect: bool,
        headers: &mut HeaderMap,
    ) {
        // Without initial headers of its own a gRPC response has trailers only.
        let is_trailer = headers.contains_key("grpc-status");
        if self.on_admitted == OnAdmitted::Never
            || self.skips_redirects && is_redirect
            || is_trailer
        {
            return;
        }
        self.write(decision, headers);
    }

    /// Adds the fields to a response.
    pub(super) fn write(&self, decision: &Decision, headers: &mut HeaderMap) {
        let is_decided =
            !matches!(decision.origin(), Origin::FailOpen | Origin::Off | Origin::Shadow);
        if self.style == HeaderStyle::None || !is_decided {
            return;
        }
        let policies = || decision.policies().filter(|policy| !policy.is_shadow());
        let tightest = policies()
            .enumerate()
            .min_by(|(_, one), (_, other)| one.compare_tightness(other))
            .map(|(index, policy)| self.standing(decision, index, &policy));
        // Which policies decide is unknown.
        let Some(standing) = tightest else { return };
        if !self.is_near_enough(decision, standing) {
            return;
        }
        match self.style {
            HeaderStyle::Draft11 => {
                append(headers, POLICY, structured::policies(policies()));
                append(
                    headers,
                    RATE_LIMIT,
                    standing.and_then(|at| structured::standing(policies(), at)),
                );
            }
            HeaderStyle::Draft07 => {
                append(headers, POLICY, structured::quotas(policies()));
                if let Some(at) = standing.filter(|_| !headers.contains_key(RATE_LIMIT)) {
                    append(headers, RATE_LIMIT, structured::dictionary(at));
                }
            }
            HeaderStyle::Draft06 => {
                append(headers, POLICY, structured::quotas(policies()));
                insert_each(headers, DRAFT_06, standing.map(|at| (at, at.reset)));
            }
            HeaderStyle::Legacy => {
                insert_each(headers, LEGACY, standing.map(|at| (at, at.reset)));
            }
            HeaderStyle::LegacyEpoch => {
                let reset = |at: Standing| (at, epoch(decision, at.reset));
                insert_each(headers, LEGACY, standing.map(reset));
            }
            HeaderStyle::None => {}
        }
    }

    /// Whether so little is left that the fields are to be shown.
    fn is_near_enough(&self, decision: &Decision, standing: Option<Standing>) -> bool {
        match (self.on_admitted, standing) {
            (OnAdmitted::LeftBelowPercent(percent), Some(at)) if decision.is_admitted() => {
                u128::from(at.remaining) * 100 < u128::from(at.limit) * u128::from(percent)
            }
            (OnAdmitted::LeftBelowPercent(_), None) => !decision.is_admitted(),
            _ => true,
        }
    }

    /// `None` if the limiter does not say what is left, or which policy refuses.
    fn standing(
        &self,
        decision: &Decision,
        index: usize,
        policy: &PolicyReport<'_>,
    ) -> Option<Standing> {
        if policy.is_admitted() && !decision.is_admitted() {
            return None;
        }
        // A structured field holds no larger numbers, and those of the other styles are the same.
        let limit = policy.quota().get_burst().min(structured::MAX_INTEGER);
        let remaining = policy.remaining()?.min(limit);
        let is_full = remaining == limit;
        // The response leaves once the reserved wait is over.
        let full_in = policy.reset_after().map(|time| time.saturating_sub(reserved(decision)));
        let (reset, has_reset) = match (decision.is_admitted(), decision.retry_after()) {
            (false, Some(wait)) => (whole_seconds(wait), true),
            _ if is_full => (0, false),
            (false, None) => (full_in.map_or(0, whole_seconds), false),
            (true, _) => (self.capped(full_in.map(whole_seconds)?, remaining, policy), true),
        };
        let reset = reset.min(structured::MAX_INTEGER);
        Some(Standing { index, limit, remaining, reset, has_reset })
    }

    /// Raises a reset until what is left, spread over it, keeps to the rate of the policy.
    fn capped(&self, reset: u64, remaining: u64, policy: &PolicyReport<'_>) -> u64 {
        if !self.caps_rate {
            return reset;
        }
        let window = policy.window().as_micros() * u128::from(remaining);
        let paced = window.div_ceil(u128::from(policy.quota().get_burst()) * 1_000_000);
        reset.max(u64::try_from(paced).unwrap_or(u64::MAX))
    }
}

/// A time as `Retry-After` and the resets state it: rounded up, and never 0.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    let whole = time.as_secs();
    whole.saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}

/// The wait that was reserved.
fn reserved(decision: &Decision) -> Duration {
    match decision.outcome() {
        Outcome::Wait(wait) => wait,
        _ => Duration::ZERO,
    }
}

/// The second of the Unix epoch that is `reset` seconds after the decision and its reserved wait.
fn epoch(decision: &Decision, reset: u64) -> u64 {
    let leaves = match decision.decided_at() {
        Some(decided_at) => decided_at.saturating_add(reserved(decision)),
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    };
    whole_seconds(leaves.saturating_add(Duration::from_secs(reset)))
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: Option<String>) {
    if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
        headers.append(name, value);
    }
}

/// Sets limit, remaining and reset, unless the inner service has set one of them.
fn insert_each(headers: &mut HeaderMap, names: [HeaderName; 3], standing: Option<(Standing, u64)>) {
    let Some((standing, reset)) = standing else { return };
    if names.iter().any(|name| headers.contains_key(name)) {
        return;
    }
    let values = [standing.limit, standing.remaining, reset];
    for (name, value) in names.into_iter().zip(values) {
        headers.insert(name, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case 114.
    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        let table = [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (12_300, 13)];
        for (millis, seconds) in table {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
