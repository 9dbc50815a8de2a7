//! Answers of refused gRPC requests: trailers-only statuses, which need no gRPC library.
//!
//! A gRPC client reads `grpc-status`, the delay in `google.rpc.RetryInfo` of its details, and
//! `grpc-retry-pushback-ms`. One header block carries them all, and ends the stream: after separate
//! headers, the client could not retry the call.

use std::fmt::Write as _;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

use super::http_refusal::HttpRefusal;
use super::rpc_status::{RpcStatus, retry_millis};
use crate::core::Refusal;

const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Returns the content type of a refusal of this request, if the request is gRPC. Upper and lower
/// case are equal.
///
/// A refusal of gRPC has the status 200. So the method counts too: with the content type alone, any
/// caller could turn the 429 of a page into a 200 that caches store.
pub(super) fn content_type<B>(request: &Request<B>) -> Option<HeaderValue> {
    if request.method() != Method::POST {
        return None;
    }
    let asked = request.headers().get(CONTENT_TYPE)?;
    let rest = strip(asked.as_bytes(), b"application/grpc")?;
    let Some(web) = strip(rest, b"-web") else {
        return is_end_of_type(rest).then(|| HeaderValue::from_static("application/grpc"));
    };
    // Browsers expect their own content type in the answer.
    is_end_of_type(strip(web, b"-text").unwrap_or(web)).then(|| asked.clone())
}

/// Returns true if a content type ends here, or goes on with a format or a parameter.
fn is_end_of_type(rest: &[u8]) -> bool {
    matches!(rest, [] | [b'+' | b';', ..])
}

/// Strips `prefix`; upper and lower case are equal.
pub(super) fn strip<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Returns the time that the caller waits for its answer, if it states one: up to 8 digits and a
/// unit.
pub(super) fn timeout(request: &HeaderMap) -> Option<Duration> {
    let (unit, digits) = request.get("grpc-timeout")?.as_bytes().split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3_600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// Writes the status of a refusal into the headers of an empty response. `denied` is the code of a
/// denial.
pub(super) fn write(headers: &mut HeaderMap, refusal: &HttpRefusal, denied: u8) {
    let status = RpcStatus::new(refusal, denied);
    let message = refusal.to_string();
    let is_denied = matches!(refusal.refusal(), Refusal::Denied(_));
    headers.insert("grpc-status", u16::from(status.code).into());
    if let Ok(message) = HeaderValue::try_from(encoded(&message)) {
        headers.insert("grpc-message", message);
    }
    if is_denied {
        let details = BASE64_STANDARD_NO_PAD.encode(status.encoded(&message));
        let details = HeaderValue::try_from(details);
        headers.extend(details.map(|details| (DETAILS, details)));
    }
    // Limited to a signed 32-bit number.
    let pushback = retry_millis(refusal).map(|millis| i32::try_from(millis).unwrap_or(i32::MAX));
    if let Some(pushback) = pushback.or(is_denied.then_some(-1)) {
        headers.insert("grpc-retry-pushback-ms", pushback.into());
    }
}

/// Encodes a text for `grpc-message`: the per cent sign, and all that is not printable ASCII, in
/// hex.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..b' ' | b'\x7F'.. => {
                let _ = write!(encoded, "%{byte:02X}");
            }
            byte => encoded.push(char::from(byte)),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
