//! Answers of refused gRPC requests: trailers-only statuses, which need no gRPC library.
//!
//! A gRPC client does not read a 429 or `Retry-After`. It reads `grpc-status`, the delay in
//! `google.rpc.RetryInfo` of its details, and `grpc-retry-pushback-ms`. One header block carries
//! them all, and ends the stream. If a response began with separate headers, the client could not
//! retry the call.

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
/// caller could turn the 429 of a page into a 200 that caches store. The version does not count: a
/// layer that translates gRPC-Web leaves it as it was.
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
mod tests {
    use http::{StatusCode, Version};

    use super::super::rpc_status::RESOURCE_EXHAUSTED;
    use super::*;
    use crate::core::{Decision, Error, ErrorKind, Outcome};

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    fn written(refusal: Refusal) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let refusal = HttpRefusal::new(refusal, StatusCode::BAD_REQUEST, Request::new(()));
        write(&mut headers, &refusal, RESOURCE_EXHAUSTED);
        headers
    }

    fn denied(retry_after: Option<Duration>) -> Refusal {
        Refusal::Denied(Decision::new(Outcome::Deny { retry_after }))
    }

    #[test]
    fn the_headers_of_a_denial_are_exact() {
        let headers = written(denied(Some(Duration::from_millis(250))));
        let fields: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(
            fields,
            [
                ("grpc-status", "8"),
                ("grpc-message", "rate limit exceeded"),
                (
                    "grpc-status-details-bin",
                    "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJl\
                     dHJ5SW5mbxIHCgUQgOWadxpPCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuRXJyb3JJbmZv\
                     EiMKE1JBVEVfTElNSVRfRVhDRUVERUQSDHRvd2VyLXNsdWljZQ",
                ),
                ("grpc-retry-pushback-ms", "250"),
            ]
        );
    }

    #[test]
    fn every_refusal_has_its_code() {
        let code = |headers: HeaderMap| headers["grpc-status"].to_str().unwrap().to_owned();
        let pushback = |headers: &HeaderMap| {
            headers.get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap().to_owned())
        };
        let never = written(denied(None));
        assert_eq!(pushback(&never).as_deref(), Some("-1"));
        // What never fits has no delay, and says which limit refuses it.
        let details = BASE64_STANDARD_NO_PAD.decode(&never["grpc-status-details-bin"]).unwrap();
        let details = String::from_utf8_lossy(&details).into_owned();
        assert!(details.contains("google.rpc.ErrorInfo") && !details.contains("RetryInfo"));
        assert_eq!(code(never), "8");

        let odd = written(denied(Some(Duration::from_micros(1_000_001))));
        assert_eq!(pushback(&odd).as_deref(), Some("1001"));

        let far = written(denied(Some(Duration::from_secs(86_400 * 365))));
        assert_eq!(pushback(&far).as_deref(), Some("2147483647"));

        let undecided = written(Refusal::Undecided(Error::new(ErrorKind::Infrastructure, "away")));
        let millis: u64 = pushback(&undecided).unwrap().parse().unwrap();
        assert!((1_000..=3_000).contains(&millis), "{millis}");
        assert_eq!(code(undecided), "14");

        let error = || Error::new(ErrorKind::Request, "no");
        for refusal in [Refusal::NoKey(error()), Refusal::Undecided(error())] {
            let headers = written(refusal);
            assert_eq!((pushback(&headers), code(headers)), (None, String::from("3")));
        }
    }

    #[test]
    fn a_message_says_what_is_wrong_with_the_request() {
        let message = |kind, text: &'static str| {
            let headers = written(Refusal::Undecided(Error::new(kind, text)));
            headers["grpc-message"].to_str().unwrap().to_owned()
        };
        assert_eq!(message(ErrorKind::Request, "the key is empty"), "the key is empty");
        assert_eq!(message(ErrorKind::Request, "100 % of ß\n"), "100 %25 of %C3%9F%0A");
        assert_eq!(message(ErrorKind::State, "10.0.0.1"), "rate limit could not be decided");
        let no_key = |kind| written(Refusal::NoKey(Error::new(kind, "no header x")));
        assert_eq!(no_key(ErrorKind::Request)["grpc-message"], "no header x");
        let of_operator = no_key(ErrorKind::Configuration);
        assert_eq!(of_operator["grpc-message"], "request has no key to limit by");
    }

    #[test]
    fn grpc_is_known_by_its_content_type_and_its_method() {
        let answer = |method, version, asked: &str| {
            let request = Request::builder().method(method).version(version);
            let kind = content_type(&request.header("content-type", asked).body(()).unwrap())?;
            Some(kind.to_str().unwrap().to_owned())
        };
        let answered = |asked| answer(Method::POST, Version::HTTP_2, asked);
        for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3] {
            for kind in ["application/grpc", "application/grpc-web"] {
                assert!(answer(Method::POST, version, kind).is_some(), "{version:?}");
                for other in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
                    assert_eq!(answer(other.clone(), version, kind), None, "{other} {version:?}");
                }
            }
        }
        for asked in ["application/grpc", "application/grpc+proto", "application/grpc;x=1"] {
            assert_eq!(answered(asked).as_deref(), Some("application/grpc"));
        }
        for asked in ["application/GRPC", "Application/Grpc+Proto", "APPLICATION/GRPC;x=1"] {
            assert_eq!(answered(asked).as_deref(), Some("application/grpc"), "{asked}");
        }
        for web in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpc-web-text",
            "application/grpc-web-text+proto;x=1",
            "Application/gRPC-Web",
        ] {
            assert_eq!(answered(web).as_deref(), Some(web));
        }
        for other in [
            "application/grpcx",
            "application/json",
            "text/plain",
            "application/grp",
            "application/GRPCX",
            "application/grpc-webx",
            "application/grpc-web-texts",
            "application/grpc-web, text/html",
        ] {
            assert_eq!(answered(other), None);
        }
        assert_eq!(content_type(&Request::post("/").body(()).unwrap()), None);
    }

    #[test]
    fn timeouts_are_read_as_the_protocol_writes_them() {
        let read = |text| timeout(&headers("grpc-timeout", text));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(read("1n"), Some(Duration::from_nanos(1)));
        for odd in ["", "m", "1", "1x", "123456789m", "-1m", "1.5S", " 1S"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
