//! Writes a decision into the fields of a response.

use std::io::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::headers::{HeaderStyle, OnAdmitted, RateLimitHeaders};
use super::policy_list::{Form, PolicyList};
use super::standing::{self, Standing};
use super::structured;
use crate::Decision;
use crate::decision::Origin;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
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

impl RateLimitHeaders {
    /// Adds the fields to the response of an admitted request, if the settings say so.
    pub(super) fn write_admitted(
        &self,
        decision: &Decision,
        is_redirect: bool,
        headers: &mut HeaderMap,
    ) {
        let is_shown =
            self.on_admitted != OnAdmitted::Never && !(self.skips_redirects && is_redirect);
        // A gRPC response without initial headers has only trailers.
        if is_shown && !headers.contains_key(GRPC_STATUS) {
            self.write(decision, headers);
        }
    }

    /// Adds the fields to a response.
    pub(super) fn write(&self, decision: &Decision, headers: &mut HeaderMap) {
        let is_decided = matches!(decision.origin(), Origin::Store | Origin::Local | Origin::Cache);
        if self.style == HeaderStyle::None || !is_decided {
            return;
        }
        let policies = || decision.policies().filter(|policy| !policy.is_shadow());
        let each = policies().enumerate();
        let tightest = each.min_by(|(_, one), (_, other)| one.compare_tightness(other));
        // The deciding policies are unknown.
        let Some((index, tightest)) = tightest else { return };
        let standing = self.standing(decision, &tightest);
        if !self.is_near_enough(decision, standing) {
            return;
        }
        match self.style {
            HeaderStyle::Draft11 => {
                let list = PolicyList::of(Form::Named, policies());
                append(headers, POLICY, list.field.clone());
                let name = list.names.get(index).zip(standing);
                let of = |(name, at): (&String, _)| draft_11(name, at, tightest.partition_key());
                append(headers, RATE_LIMIT, name.and_then(of));
            }
            HeaderStyle::Draft07 => {
                append(headers, POLICY, PolicyList::of(Form::Bare, policies()).field.clone());
                if let Some(at) = standing.filter(|_| !headers.contains_key(RATE_LIMIT)) {
                    append(headers, RATE_LIMIT, draft_07(at));
                }
            }
            HeaderStyle::Draft06 => {
                append(headers, POLICY, PolicyList::of(Form::Bare, policies()).field.clone());
                insert_each(headers, DRAFT_06, standing.map(|at| (at, at.reset)));
            }
            HeaderStyle::Legacy => {
                insert_each(headers, LEGACY, standing.map(|at| (at, at.reset)));
            }
            HeaderStyle::LegacyEpoch => {
                let reset = |at: Standing| (at, standing::epoch(decision, at.reset));
                insert_each(headers, LEGACY, standing.map(reset));
            }
            HeaderStyle::None => {}
        }
    }

    /// Returns true if so few units are left that the fields are shown.
    fn is_near_enough(&self, decision: &Decision, standing: Option<Standing>) -> bool {
        match (self.on_admitted, standing) {
            (OnAdmitted::LeftBelowPercent(percent), Some(at)) if decision.is_admitted() => {
                u128::from(at.remaining) * 100 < u128::from(at.limit) * u128::from(percent)
            }
            (OnAdmitted::LeftBelowPercent(_), None) => !decision.is_admitted(),
            _ => true,
        }
    }
}

/// Writes `"daily";r=100;t=36000`. Names need no escapes, so these are the bytes that a serializer
/// writes.
fn draft_11(name: &str, at: Standing, partition_key: Option<[u8; 8]>) -> Option<HeaderValue> {
    if partition_key.is_some() {
        return HeaderValue::try_from(structured::standing(name, at, partition_key)?).ok();
    }
    let [mut remaining, mut reset] = [itoa::Buffer::new(); 2];
    let reset = if at.has_reset { [";t=", reset.format(at.reset)] } else { [""; 2] };
    value(&["\"", name, "\";r=", remaining.format(at.remaining), reset[0], reset[1]])
}

/// Writes `limit=100, remaining=42, reset=13`.
fn draft_07(at: Standing) -> Option<HeaderValue> {
    let [mut limit, mut remaining, mut reset] = [itoa::Buffer::new(); 3];
    let numbers = [limit.format(at.limit), remaining.format(at.remaining), reset.format(at.reset)];
    let [limit, remaining, reset] = numbers;
    value(&["limit=", limit, ", remaining=", remaining, ", reset=", reset])
}

/// Writes a number as a value.
pub(super) fn number(number: u64) -> Option<HeaderValue> {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).ok()
}

/// Makes a value for one response. Its text is on the stack, since a `String` needs one more
/// allocation. `None` if it is too long, or invalid in a field.
fn value(pieces: &[&str]) -> Option<HeaderValue> {
    // Enough for a policy's name and three numbers.
    let mut bytes = [0; 160];
    let mut rest = &mut bytes[..];
    pieces.iter().try_for_each(|piece| rest.write_all(piece.as_bytes())).ok()?;
    let length = 160 - rest.len();
    HeaderValue::from_bytes(&bytes[..length]).ok()
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
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
        append(headers, name, number(value));
    }
}

#[cfg(test)]
mod tests {
    use sfv::{DictSerializer, Integer, KeyRef};

    use super::*;

    /// The hand-written text equals the text of the library.
    #[test]
    fn a_standing_is_written_as_a_serializer_writes_it() {
        let mut dice = fastrand::Rng::with_seed(11);
        let integer = |number| Integer::try_from(number).expect("in range");
        for _ in 0..1_000 {
            let mut number = || dice.u64(..=standing::MAX_INTEGER) >> dice.u32(..50);
            let [limit, remaining, reset] = [number(), number(), number()];
            let has_reset = dice.bool();
            let at = Standing { limit, remaining, reset, has_reset };
            let name = "a.B:c_d-9".repeat(dice.usize(1..=7));
            let list = structured::standing(&name, at, None).unwrap();
            assert_eq!(draft_11(&name, at, None).unwrap(), list);

            let mut dictionary = DictSerializer::new();
            let values = [("limit", limit), ("remaining", remaining), ("reset", reset)];
            for (key, value) in values {
                _ = dictionary.bare_item(KeyRef::from_str(key).unwrap(), integer(value));
            }
            assert_eq!(draft_07(at).unwrap(), dictionary.finish().unwrap());
        }
    }
}
