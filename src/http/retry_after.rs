//! The time that a refusing upstream asks its callers to wait: the reader of what responders write.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::DATE;
use http::{HeaderMap, Response, StatusCode};

use super::rpc_status::retry_delay;

/// Returns the time that the upstream asks its caller to wait before it tries again, at most
/// `longest`. `None` if the response does not refuse, or names no time.
///
/// A refusal has the status 429 or 503, or it is a status of gRPC with the code
/// `RESOURCE_EXHAUSTED` (8) or `UNAVAILABLE` (14) in the headers. The first of these that can be
/// read decides:
///
/// | answer | field | form |
/// |---|---|---|
/// | 429, 503 | `Retry-After` | seconds, or a date of HTTP |
/// | | `RateLimit` | draft-11 and later: `"name";r=0;t=13`; draft-07: `remaining=0, reset=13` |
/// | | `RateLimit-Reset`, with `RateLimit-Remaining` | draft-06: seconds |
/// | | `X-RateLimit-Reset`, with `X-RateLimit-Remaining` | seconds, or a Unix time in seconds or milliseconds |
/// | gRPC | `RetryInfo` in `grpc-status-details-bin` | |
/// | | `grpc-retry-pushback-ms` | milliseconds; if it is negative or malformed: `None` |
///
/// - **Limits that have units left** do not count: they did not refuse. The fields say nothing then.
/// - **Several values** of a field: the longest. Of `RateLimit`, the longest of all its limits.
/// - **A date** counts from the `Date` of the response, so the clocks may differ. Without a `Date` it
///   counts from the clock of this machine. A time that is over is a wait of 0.
/// - **Seconds** are digits, perhaps with a fraction, which is rounded up. What is not, such as a
///   negative number, `NaN` or `1e3`, is ignored as if it were absent. A number that is too large is
///   `longest`.
///
/// A time of a supplier is a claim: choose `longest` so that you can bear the whole of it.
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
/// assert_eq!(retry_after(&refused("retry-after", "soon"), MINUTE), None);
/// let limits = r#""burst";r=0;t=1, "daily";r=0;t=20, "monthly";r=800;t=90000"#;
/// assert_eq!(retry_after(&refused("ratelimit", limits), MINUTE), Some(Duration::from_secs(20)));
/// ```
///
/// For the status of a tonic client: `retry_after(&status.into_http::<()>(), longest)`.
#[must_use]
pub fn retry_after<B>(response: &Response<B>, longest: Duration) -> Option<Duration> {
    let headers = response.headers();
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            of_fields(headers).map(|wait| wait.min(longest))
        }
        StatusCode::OK => grpc_retry_after(headers, longest),
        _ => None,
    }
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

/// Reads the fields of HTTP.
fn of_fields(headers: &HeaderMap) -> Option<Duration> {
    let all = |name: &'static str| {
        headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    };
    let sent = headers.get(DATE).and_then(|date| date.to_str().ok());
    let now = sent.and_then(date).unwrap_or_else(SystemTime::now);
    let until = |time: SystemTime| time.duration_since(now).unwrap_or_default();
    // No limit lasts 30 years: that is a time since 1970, in seconds or in milliseconds.
    let in_time = |reset| match reset {
        1_000_000_000_000.. => until(UNIX_EPOCH + Duration::from_millis(reset)),
        1_000_000_000.. => until(UNIX_EPOCH + Duration::from_secs(reset)),
        _ => Duration::from_secs(reset),
    };
    let read = |text| number(text).map(Duration::from_secs).or_else(|| date(text).map(until));
    if let Some(wait) = all("retry-after").filter_map(read).max() {
        return Some(wait);
    }
    let draft = |field: &str| {
        let limits = split(field, ',').filter_map(|limit| spent(split(limit, ';'), ["r", "t"]));
        limits.chain(spent(split(field, ','), ["remaining", "reset"])).max()
    };
    let apart = |[remaining, reset]: [&'static str; 2]| {
        let is_spent = all(remaining).filter_map(number).all(|left| left == 0);
        is_spent.then(|| all(reset).filter_map(number).max())?
    };
    let reset = all("ratelimit").filter_map(draft).max();
    let reset = reset.or_else(|| apart(["ratelimit-remaining", "ratelimit-reset"]));
    reset.or_else(|| apart(["x-ratelimit-remaining", "x-ratelimit-reset"])).map(in_time)
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
mod tests {
    use super::*;
    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};

    const DAY: Duration = Duration::from_secs(86_400);

    fn wait(status: u16, fields: &[(&str, &str)]) -> Option<f64> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        retry_after(&response.body(()).unwrap(), DAY).map(|wait| wait.as_secs_f64())
    }

    fn refused(name: &str, value: &str) -> Option<f64> {
        wait(429, &[(name, value)])
    }

    #[test]
    fn only_refusals_ask_to_wait() {
        for status in [200, 204, 301, 400, 403, 404, 500, 502] {
            assert_eq!(wait(status, &[("retry-after", "3")]), None, "{status}");
        }
        for status in [429, 503] {
            assert_eq!(wait(status, &[("retry-after", "3")]), Some(3.0));
            assert_eq!(wait(status, &[]), None);
        }
    }

    #[test]
    fn retry_after_is_seconds() {
        for (text, seconds) in [("0", 0.0), (" 7 ", 7.0), ("1.5", 2.0), ("2.000", 2.0)] {
            assert_eq!(refused("retry-after", text), Some(seconds), "{text}");
        }
        for huge in ["86401", "18446744073709551616", &"9".repeat(400)] {
            assert_eq!(refused("retry-after", huge), Some(86_400.0), "{huge}");
        }
        for wrong in
            ["", "-1", "+1", "NaN", "inf", "1e3", "0x10", "1.", ".5", "1,2", "3s", "soon", "1 2"]
        {
            assert_eq!(refused("retry-after", wrong), None, "{wrong}");
        }
        let several = [("retry-after", "3"), ("retry-after", "soon"), ("retry-after", "9")];
        assert_eq!(wait(429, &several), Some(9.0));
    }

    #[test]
    fn a_date_counts_from_that_of_the_response() {
        let sent = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for at in [
            "Sun, 06 Nov 1994 08:49:50 GMT",
            "Sunday, 06-Nov-94 08:49:50 GMT",
            "Sun Nov  6 08:49:50 1994",
        ] {
            assert_eq!(wait(503, &[sent, ("retry-after", at)]), Some(13.0), "{at}");
        }
        let over = ("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT");
        assert_eq!(wait(503, &[sent, over]), Some(0.0));
        // By the clock of this machine.
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        let left = refused("retry-after", &soon).unwrap();
        assert!((90.0..=100.0).contains(&left), "{left}");
        let left = wait(429, &[("date", "yesterday"), ("retry-after", &soon)]).unwrap();
        assert!((90.0..=100.0).contains(&left), "{left}");
        let far = "Fri, 31 Dec 9999 23:59:59 GMT";
        assert_eq!(refused("retry-after", far), Some(86_400.0));
        assert_eq!(refused("retry-after", "Sun, 31 Feb 2027 00:00:00 GMT"), None);
    }

    #[test]
    fn rate_limit_fields_of_every_draft_are_read() {
        let table = [
            (r#""api";r=0;t=13"#, Some(13.0)),
            (r#""api"; r=0; t=13; pk=:6j/UO+HlfWI=:"#, Some(13.0)),
            (r#""a";r=0;t=1, "b";r=0;t=20 , "c";r=800;t=900"#, Some(20.0)),
            (r#""a,b;t=9\"";r=0;t=3"#, Some(3.0)),
            (r#""api";r=4;t=13"#, None),
            (r#""api";r=0"#, None),
            (r#""api";r=0;t=-3"#, None),
            (r#""api;r=0;t=3"#, None),
            ("limit=100, remaining=0, reset=13", Some(13.0)),
            ("limit=100,remaining=42,reset=13", None),
            ("remaining=0, reset=NaN", None),
            ("nonsense", None),
            ("", None),
        ];
        for (field, seconds) in table {
            assert_eq!(refused("ratelimit", field), seconds, "{field}");
        }
        let two = [("ratelimit", r#""a";r=0;t=2"#), ("ratelimit", r#""b";r=0;t=5"#)];
        assert_eq!(wait(429, &two), Some(5.0));
        // This one decides, and the others where it cannot be read.
        let both = |first| wait(429, &[("retry-after", first), ("ratelimit", r#""a";r=0;t=2"#)]);
        assert_eq!((both("1"), both("?")), (Some(1.0), Some(2.0)));
    }

    #[test]
    fn resets_are_seconds_or_a_unix_time() {
        for (remaining, reset) in [
            ("ratelimit-remaining", "ratelimit-reset"),
            ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ] {
            let sent = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
            for at in ["13", "784111790", "784111789.2", "784111790000"] {
                let seconds = wait(429, &[sent, (remaining, "0"), (reset, at)]);
                // Before 2001 a Unix time is no larger than 30 years.
                let expected = if at == "13" { 13.0 } else { 86_400.0 };
                assert_eq!(seconds, Some(expected), "{at}");
            }
            let sent = ("date", "Thu, 01 Jan 2026 00:00:00 GMT");
            for at in ["1767225613", "1767225612.2", "1767225613000"] {
                assert_eq!(wait(429, &[sent, (reset, at)]), Some(13.0), "{at}");
            }
            assert_eq!(wait(429, &[sent, (reset, "1767225000")]), Some(0.0));
            assert_eq!(wait(429, &[(remaining, "4"), (reset, "13")]), None);
            assert_eq!(refused(reset, "18446744073709551615"), Some(86_400.0));
        }
    }

    /// A `google.rpc.Status` with a `RetryInfo` of 250 ms and an `ErrorInfo`.
    const DETAILS: &str = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUu\
                           cnBjLlJldHJ5SW5mbxIHCgUQgOWadw";

    fn status(code: &str, details: &str, pushback: &str) -> Option<f64> {
        let fields = [
            ("content-type", "application/grpc"),
            ("grpc-status", code),
            ("grpc-status-details-bin", details),
            ("grpc-retry-pushback-ms", pushback),
        ];
        let is_there = |(_, value): &&(&str, &str)| !value.is_empty();
        let fields: Vec<_> = fields.iter().filter(is_there).copied().collect();
        wait(200, &fields)
    }

    #[test]
    fn a_status_of_grpc_has_a_retry_info_or_a_pushback() {
        for code in ["8", "14"] {
            assert_eq!(status(code, DETAILS, ""), Some(0.25));
            assert_eq!(status(code, DETAILS, "1250"), Some(0.25));
            assert_eq!(status(code, "", "1250"), Some(1.25));
            assert_eq!(status(code, "?", "1250"), Some(1.25));
            for never in ["-1", "soon", "1.5", "NaN"] {
                assert_eq!(status(code, DETAILS, never), None, "{never}");
            }
            assert_eq!(status(code, "", ""), None);
            assert_eq!(status(code, "", "18446744073709551615"), Some(86_400.0));
        }
        for other in ["0", "4", "10", "08", "", "x"] {
            assert_eq!(status(other, DETAILS, "250"), None, "{other}");
        }
        let padded = BASE64_STANDARD_NO_PAD.decode(DETAILS).unwrap();
        assert_eq!(status("8", &BASE64_STANDARD.encode(padded), ""), Some(0.25));
    }

    /// What this crate answers, it reads.
    #[test]
    fn refusals_of_this_crate_are_read() {
        use crate::core::{Decision, Outcome, Refusal};
        use crate::http::{HeaderStyle, HttpResponder};

        let denied = || {
            let retry_after = Some(Duration::from_millis(12_300));
            Refusal::Denied(Decision::new(Outcome::Deny { retry_after }))
        };
        let read = |request: http::request::Builder| {
            let respond = HttpResponder::new().headers(HeaderStyle::None);
            let request = request.body(()).unwrap();
            let response: Response<String> = respond.refuse_in_handler(request, denied());
            retry_after(&response, DAY)
        };
        let grpc = http::Request::post("/").header("content-type", "application/grpc");
        assert_eq!(read(grpc), Some(Duration::from_millis(12_300)));
        for http in [http::Request::get("/"), http::Request::get("/?connect=v1")] {
            assert_eq!(read(http), Some(Duration::from_secs(13)));
        }
    }
}
