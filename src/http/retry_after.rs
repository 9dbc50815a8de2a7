//! The time that a refusing upstream asks its callers to wait: the reader of what responders write.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::DATE;
use http::{HeaderMap, Response};

use super::rpc_status::retry_delay;

/// Returns the time that the upstream asks its caller to wait before it tries again, at most
/// `longest`. `None` if the response does not refuse, or names no time.
///
/// A refusal has the status 429, 503 or 529, or it is a status of gRPC with the code
/// `RESOURCE_EXHAUSTED` (8) or `UNAVAILABLE` (14) in the headers. A 403 is one if it has
/// `Retry-After` or a limit without units left, as from GitHub. The first of these that can be read
/// decides:
///
/// | answer | field | form |
/// |---|---|---|
/// | HTTP | `Retry-After` | seconds, a date of HTTP, or a Unix time |
/// | | `Retry-After-MS`, `X-MS-Retry-After-MS` of Azure | milliseconds |
/// | | `RateLimit` | draft-11 and later: `"name";r=0;t=13`; draft-07: `remaining=0, reset=13` |
/// | | `RateLimit-Reset`, with `RateLimit-Remaining` | draft-06: seconds |
/// | | the same after `X-`, also spelled `X-Rate-Limit` | seconds, or a Unix time |
/// | gRPC | `RetryInfo` in `grpc-status-details-bin` | |
/// | | `grpc-retry-pushback-ms` | milliseconds; if it is negative or malformed: `None` |
///
/// - **Limits that have units left** do not count: they did not refuse. The fields say nothing then.
/// - **Several values** of a field: the longest. Of `RateLimit`, the longest of all its limits.
/// - **A date** counts from the `Date` of the response, so the clocks may differ. Without a `Date`
///   it counts from the clock of this machine. A time that is over is a wait of 0.
/// - **Seconds** are digits, perhaps with a fraction, which is rounded up. Anything else is
///   ignored. A number that is too large is `longest`. A Unix time may have seconds, or parts of
///   them down to nanoseconds.
///
/// ```
/// use std::time::Duration;
/// use http::Response;
/// use tower_sluice::upstream::retry_after;
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// let refused = |field, value| {
///     Response::builder().status(429).header(field, value).body(()).unwrap()
/// };
/// assert_eq!(retry_after(&refused("retry-after", "3"), MINUTE), Some(Duration::from_secs(3)));
/// assert_eq!(retry_after(&refused("retry-after", "86400"), MINUTE), Some(MINUTE));
/// let limits = r#""burst";r=0;t=1, "daily";r=0;t=20, "monthly";r=800;t=90000"#;
/// assert_eq!(retry_after(&refused("ratelimit", limits), MINUTE), Some(Duration::from_secs(20)));
/// ```
///
/// For the status of a tonic client: `retry_after(&status.into_http::<()>(), longest)`.
#[must_use]
pub fn retry_after<B>(response: &Response<B>, longest: Duration) -> Option<Duration> {
    let headers = response.headers();
    let of_fields = || of_fields(headers).map(|wait| wait.min(longest));
    match response.status().as_u16() {
        429 | 503 | 529 => of_fields(),
        403 if is_limited(headers) => of_fields(),
        200 => grpc_retry_after(headers, longest),
        _ => None,
    }
}

/// Returns true if a refusal that may have other reasons names a limit as its reason.
fn is_limited(headers: &HeaderMap) -> bool {
    let is_spent = |[remaining, _]: [&str; 2]| all(headers, remaining).any(|left| left == "0");
    ["retry-after", "ratelimit"].iter().any(|name| headers.contains_key(*name))
        || APART.into_iter().any(is_spent)
}

/// The fields of what is left, each with that of its reset.
const APART: [[&str; 2]; 3] = [
    ["ratelimit-remaining", "ratelimit-reset"],
    ["x-ratelimit-remaining", "x-ratelimit-reset"],
    ["x-rate-limit-remaining", "x-rate-limit-reset"],
];

/// Azure's own fields.
const IN_MILLIS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];

/// Returns the values of a field.
fn all<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}

/// Returns the time that trailers of gRPC ask their caller to wait, as [`retry_after`] does for a
/// status in the headers.
#[must_use]
pub fn grpc_retry_after(trailers: &HeaderMap, longest: Duration) -> Option<Duration> {
    if !matches!(trailers.get("grpc-status")?.as_bytes(), b"8" | b"14") {
        return None;
    }
    let pushback = match trailers.get("grpc-retry-pushback-ms") {
        Some(millis) => Some(Duration::from_millis(millis.to_str().ok()?.parse().ok()?)),
        None => None,
    };
    let details = trailers.get("grpc-status-details-bin");
    let details = details.and_then(|details| BASE64.decode(details).ok());
    let asked = details.and_then(|status| retry_delay(&status)).or(pushback);
    asked.map(|wait| wait.min(longest))
}

/// Reads values with padding and without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn of_fields(headers: &HeaderMap) -> Option<Duration> {
    let all = |name: &str| all(headers, name);
    let sent = headers.get(DATE).and_then(|date| date.to_str().ok());
    let now = sent.and_then(date).unwrap_or_else(SystemTime::now);
    let until = |time: SystemTime| time.duration_since(now).unwrap_or_default();
    // Computed as durations: some systems have no time that is as late.
    let until_unix = |since| from_unix(since, now);
    // No limit lasts 30 years: that is a time since 1970, in seconds or in parts of them.
    let in_time = |reset| match reset {
        1_000_000_000_000_000_000.. => until_unix(Duration::from_nanos(reset)),
        1_000_000_000_000_000.. => until_unix(Duration::from_micros(reset)),
        1_000_000_000_000.. => until_unix(Duration::from_millis(reset)),
        1_000_000_000.. => until_unix(Duration::from_secs(reset)),
        _ => Duration::from_secs(reset),
    };
    let read = |text| number(text).map(in_time).or_else(|| date(text).map(until));
    let asked = all("retry-after").filter_map(read).max();
    let in_millis = IN_MILLIS.into_iter().flat_map(all).filter_map(number).max();
    if let Some(wait) = asked.max(in_millis.map(Duration::from_millis)) {
        return Some(wait);
    }
    let draft = |field: &str| {
        let limits = split(field, ',').filter_map(|limit| spent(split(limit, ';'), ["r", "t"]));
        limits.chain(spent(split(field, ','), ["remaining", "reset"])).max()
    };
    let apart = |[remaining, reset]: [&str; 2]| {
        // Docker Hub writes `76;w=21600`.
        let left = |text: &'_ str| number(split(text, ';').next().unwrap_or_default());
        let is_spent = all(remaining).filter_map(left).all(|left| left == 0);
        is_spent.then(|| all(reset).filter_map(number).max())?
    };
    let reset = all("ratelimit").filter_map(draft).max();
    reset.or_else(|| APART.into_iter().find_map(apart)).map(in_time)
}

/// Returns the time from now to a Unix time.
fn from_unix(since: Duration, now: SystemTime) -> Duration {
    since.saturating_sub(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// Reads whole seconds. A fraction is rounded up, and a number that is too large is the largest.
fn number(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_more = fraction.bytes().any(|digit| digit != b'0');
    (digits(whole) && digits(fraction))
        .then(|| whole.parse().unwrap_or(u64::MAX).saturating_add(is_more.into()))
}

/// Returns the reset in the parameters of a limit, unless it has units left.
fn spent<'a>(parameters: impl Iterator<Item = &'a str>, [left, reset]: [&str; 2]) -> Option<u64> {
    let pairs = parameters.filter_map(|parameter| parameter.split_once('='));
    let (mut is_spent, mut time) = (true, None);
    for (name, value) in pairs.map(|(name, value)| (name.trim(), number(value))) {
        is_spent &= name != left || value == Some(0);
        time = if name == reset { value } else { time };
    }
    time.filter(|_| is_spent)
}

/// Splits a structured field at a separator outside of its strings.
fn split(field: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut in_string, mut is_escaped) = (false, false);
    field.split(move |character| {
        let is_plain = !is_escaped;
        is_escaped = is_plain && in_string && character == '\\';
        in_string ^= is_plain && character == '"';
        !in_string && character == separator
    })
}

#[cfg(test)]
mod tests;
