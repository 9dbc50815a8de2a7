//! Writes a decision into the fields of a response.

use std::io::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::headers::{HeaderStyle, OnAdmitted, RateLimitHeaders};
use super::policy_list::{Form, PolicyList};
use super::standing::{self, Standing};
use crate::core::Decision;
use crate::core::decision::{Origin, PolicyReport};

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
    pub(super) fn write_admitted<C>(
        &self,
        decision: &Decision,
        is_redirect: bool,
        response: &mut Response<C>,
    ) {
        let is_shown =
            self.on_admitted != OnAdmitted::Never && !(self.skips_redirects && is_redirect);
        // A gRPC response without initial headers has only trailers.
        if is_shown && !response.headers().contains_key(GRPC_STATUS) {
            self.write(decision, response);
        }
    }

    pub(super) fn write<C>(&self, decision: &Decision, response: &mut Response<C>) {
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
        let form = match self.style {
            HeaderStyle::Draft11 => Some(Form::Named),
            HeaderStyle::Draft07 | HeaderStyle::Draft06 => Some(Form::Bare),
            HeaderStyle::Legacy | HeaderStyle::LegacyEpoch | HeaderStyle::None => None,
        };
        let list = form.map(|form| PolicyList::of(form, policies()));
        if let Some(list) = &list {
            append(response.headers_mut(), POLICY, list.field.clone());
        }
        let Some(at) = standing else { return };
        match self.style {
            HeaderStyle::Draft11 => {
                let name = list.as_ref().and_then(|list| list.names.get(index));
                let of = |name: &String| draft_11(name, at, tightest.partition_key());
                append(response.headers_mut(), RATE_LIMIT, name.and_then(of));
            }
            HeaderStyle::Draft07 => {
                show::<7, 1, _>(response, [RATE_LIMIT], [draft_07(at)], tightest)
            }
            HeaderStyle::Draft06 => {
                show::<6, 3, _>(response, DRAFT_06, numbers(at, at.reset), tightest);
            }
            HeaderStyle::Legacy => {
                show::<0, 3, _>(response, LEGACY, numbers(at, at.reset), tightest);
            }
            HeaderStyle::LegacyEpoch => {
                let reset = standing::epoch(decision, at.reset);
                show::<0, 3, _>(response, LEGACY, numbers(at, reset), tightest);
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

/// Writes `"daily";r=100;t=36000`, and the partition key as `;pk=:AQIDBAUGBwg=:`. Names need no
/// escapes, so these are the bytes that a serializer writes.
fn draft_11(name: &str, at: Standing, partition_key: Option<[u8; 8]>) -> Option<HeaderValue> {
    let [mut remaining, mut reset] = [itoa::Buffer::new(); 2];
    let reset = if at.has_reset { [";t=", reset.format(at.reset)] } else { [""; 2] };
    let key = partition_key.map(|key| format!(";pk=:{}:", BASE64_STANDARD.encode(key)));
    let key = key.unwrap_or_default();
    value(&["\"", name, "\";r=", remaining.format(at.remaining), reset[0], reset[1], &key])
}

/// Writes `limit=100, remaining=42, reset=13`.
fn draft_07(at: Standing) -> Option<HeaderValue> {
    let [mut limit, mut remaining, mut reset] = [itoa::Buffer::new(); 3];
    let numbers = [limit.format(at.limit), remaining.format(at.remaining), reset.format(at.reset)];
    let [limit, remaining, reset] = numbers;
    value(&["limit=", limit, ", remaining=", remaining, ", reset=", reset])
}

pub(super) fn number(number: u64) -> Option<HeaderValue> {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).ok()
}

/// Makes a value for one response. Its text is on the stack, since a `String` needs one more
/// allocation. `None` if it is too long, or invalid in a field.
fn value(pieces: &[&str]) -> Option<HeaderValue> {
    // Enough for a policy's name and three numbers, or two and a partition key.
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

fn numbers(at: Standing, reset: u64) -> [Option<HeaderValue>; 3] {
    [at.limit, at.remaining, reset].map(number)
}

/// The policy that a layer of this crate shows in the fields of a style with one value. Styles with
/// the same names of fields have one number `STYLE`.
#[derive(Clone)]
struct Shown<const STYLE: u8>(PolicyReport<'static>);

/// Sets fields with one value. It keeps those of the inner service, and those of an inner layer
/// that show a tighter policy.
fn show<const STYLE: u8, const N: usize, C>(
    response: &mut Response<C>,
    names: [HeaderName; N],
    values: [Option<HeaderValue>; N],
    policy: PolicyReport<'_>,
) {
    let is_kept = match response.extensions().get::<Shown<STYLE>>() {
        Some(Shown(inner)) => inner.compare_tightness(&policy).is_le(),
        None => names.iter().any(|name| response.headers().contains_key(name)),
    };
    if !is_kept {
        for (name, value) in names.into_iter().zip(values) {
            let _ = value.map(|value| response.headers_mut().insert(name, value));
        }
        response.extensions_mut().insert(Shown::<STYLE>(policy.unnamed()));
    }
}

#[cfg(test)]
mod tests;
