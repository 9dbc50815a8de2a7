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
    for status in [200, 204, 301, 400, 404, 500, 502] {
        assert_eq!(wait(status, &[("retry-after", "3")]), None, "{status}");
    }
    for status in [403, 429, 503, 529] {
        assert_eq!(wait(status, &[("retry-after", "3")]), Some(3.0));
        assert_eq!(wait(status, &[]), None);
    }
}

/// As from Docker Hub.
#[test]
fn a_limit_with_its_window_has_units_left() {
    for (left, expected) in [("76;w=21600", None), ("0;w=21600", Some(13.0))] {
        let fields = [("ratelimit-remaining", left), ("ratelimit-reset", "13")];
        assert_eq!(wait(429, &fields), expected, "{left}");
    }
}

/// As from GitHub, which answers so to who may not read a page, too.
// Case 184.
#[test]
fn a_403_asks_to_wait_if_a_limit_is_its_reason() {
    for [remaining, reset] in APART {
        let table =
            [(Some("0"), Some(13.0)), (Some("4999"), None), (Some("soon"), None), (None, None)];
        for (left, seconds) in table {
            let left = left.map(|left| (remaining, left));
            let fields: Vec<_> = left.into_iter().chain([(reset, "13")]).collect();
            assert_eq!(wait(403, &fields), seconds, "{fields:?}");
        }
    }
    assert_eq!(wait(403, &[("ratelimit", r#""api";r=0;t=13"#)]), Some(13.0));
    assert_eq!(wait(403, &[("ratelimit", r#""api";r=4;t=13"#)]), None);
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
    // A supplier that writes a time where seconds belong stops nobody for 56 years.
    let in_13_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(13);
    for time in [
        u128::from(in_13_s.as_secs()),
        in_13_s.as_millis(),
        in_13_s.as_micros(),
        in_13_s.as_nanos(),
    ] {
        let left = refused("retry-after", &time.to_string()).unwrap();
        assert!((0.0..=13.0).contains(&left), "{time}: {left}");
    }
    for field in IN_MILLIS {
        assert_eq!(refused(field, "1500"), Some(1.5), "{field}");
        assert_eq!(wait(429, &[(field, "1500"), ("retry-after", "2")]), Some(2.0), "{field}");
        assert_eq!(wait(429, &[(field, "1500"), ("retry-after", "soon")]), Some(1.5), "{field}");
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
    for [remaining, reset] in APART {
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

/// Also for one that a system cannot have: Windows counts in 100 ns from 1601 on.
#[test]
fn a_far_unix_time_is_far() {
    let now = UNIX_EPOCH + 9 * DAY;
    for far in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_millis(u64::MAX)] {
        assert_eq!(from_unix(far, now), far - 9 * DAY);
    }
    assert_eq!(from_unix(10 * DAY, now), DAY);
    for past in [9 * DAY, DAY, Duration::ZERO] {
        assert_eq!(from_unix(past, now), Duration::ZERO);
    }
    assert_eq!(from_unix(DAY, UNIX_EPOCH - DAY), DAY);
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
