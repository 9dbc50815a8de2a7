//! Answers of refused Connect-RPC requests: errors in JSON.
//!
//! A Connect client takes the code of an error from the body. Without one it reads a 429 as
//! `unavailable`. A unary call gets the error with the code's HTTP status. A stream has the status
//! 200, and the error is in the message that ends it.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};

use super::grpc::strip;
use super::problem::push_text;
use super::rpc_status::RpcStatus;

const VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");

/// The codes from 1 on, with their HTTP statuses.
const CODES: [(&str, u16); 16] = [
    ("canceled", 499),
    ("unknown", 500),
    ("invalid_argument", 400),
    ("deadline_exceeded", 504),
    ("not_found", 404),
    ("already_exists", 409),
    ("permission_denied", 403),
    ("resource_exhausted", 429),
    ("failed_precondition", 400),
    ("aborted", 409),
    ("out_of_range", 400),
    ("unimplemented", 501),
    ("internal", 500),
    ("unavailable", 503),
    ("data_loss", 500),
    ("unauthenticated", 401),
];

/// A request of Connect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    Unary,
    /// With the content type of the request, which its answer has, too.
    Stream(HeaderValue),
}

impl Call {
    /// Returns the kind of a request. `None` if it is not Connect. A unary `POST` has the content
    /// type of any program that sends JSON, so it is Connect by its version alone.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        if request.method() == Method::GET {
            let is_connect = request.uri().query()?.split('&').any(|pair| pair == "connect=v1");
            return is_connect.then_some(Self::Unary);
        }
        let kind = request.headers().get(CONTENT_TYPE)?;
        if request.method() != Method::POST {
            return None;
        }
        let format = strip(kind.as_bytes(), b"application/")?;
        match strip(format, b"connect+") {
            Some(_) => Some(Self::Stream(kind.clone())),
            None => (request.headers().get(VERSION)? == "1").then_some(Self::Unary),
        }
    }
}

/// Returns the time that a caller of Connect waits for its answer, if it states one: up to 10
/// digits.
pub(super) fn timeout<B>(request: &Request<B>) -> Option<Duration> {
    let digits = request.headers().get("connect-timeout-ms")?.to_str().ok()?;
    let is_number = digits.len() <= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || Call::of(request).is_none() {
        return None;
    }
    digits.parse().ok().map(Duration::from_millis)
}

/// Returns the HTTP status of a code.
pub(super) fn http_status(status: &RpcStatus) -> StatusCode {
    let (_, http) = CODES[usize::from(status.code) - 1];
    StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Writes an error in JSON.
pub(super) fn error(status: &RpcStatus, message: &str) -> String {
    let (code, _) = CODES[usize::from(status.code) - 1];
    let mut json = String::with_capacity(256);
    json.extend([r#"{"code":""#, code, r#"","message":"#]);
    push_text(&mut json, message);
    for (index, (name, value)) in status.details.iter().enumerate() {
        json.push_str(if index == 0 { r#","details":["# } else { "," });
        json.extend([r#"{"type":"google.rpc."#, name, r#"","value":""#]);
        BASE64_STANDARD_NO_PAD.encode_string(value, &mut json);
        json.push_str(r#""}"#);
    }
    json.push_str(if status.details.is_empty() { "}" } else { "]}" });
    json
}

/// Writes the message that ends a stream with this error: a flag, the length, and JSON.
pub(super) fn end_of_stream(error: &str) -> String {
    let mut json = format!(r#"{{"error":{error}}}"#);
    // Bodies are made of text, and JSON may end with spaces: until the bytes of the length are text.
    let length = |json: &str| (json.len() as u32).to_be_bytes();
    while !length(&json).is_ascii() {
        json.push(' ');
    }
    let head = [2].into_iter().chain(length(&json)).map(char::from);
    head.collect::<String>() + &json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(kind: &str) -> http::request::Builder {
        Request::post("/a.B/C").header("content-type", kind)
    }

    #[test]
    fn connect_is_known_by_its_content_type_and_its_version() {
        let of = |request: http::request::Builder| Call::of(&request.body(()).unwrap());
        for kind in ["application/json", "application/proto", "Application/JSON; charset=utf-8"] {
            let unary = of(post(kind).header("connect-protocol-version", "1"));
            assert_eq!(unary, Some(Call::Unary), "{kind}");
            // Other programs send it, too.
            assert_eq!(of(post(kind)), None, "{kind}");
            assert_eq!(of(post(kind).header("connect-protocol-version", "2")), None, "{kind}");
        }
        for kind in
            ["application/connect+proto", "application/connect+json", "Application/Connect+X"]
        {
            let stream = Call::Stream(HeaderValue::from_str(kind).unwrap());
            assert_eq!(of(post(kind)), Some(stream), "{kind}");
            for method in [Method::GET, Method::PUT, Method::HEAD] {
                assert_eq!(of(post(kind).method(method)), None);
            }
        }
        let versioned = |kind| post(kind).header("connect-protocol-version", "1");
        for kind in ["text/plain", "", "application", "multipart/form-data"] {
            assert_eq!(of(versioned(kind)), None, "{kind}");
        }
        assert_eq!(of(versioned("application/json").method(Method::PUT)), None);
        assert_eq!(of(Request::post("/").header("connect-protocol-version", "1")), None);

        let get = |target| of(Request::get(target));
        assert_eq!(get("/a.B/C?encoding=json&message=%7B%7D&connect=v1"), Some(Call::Unary));
        assert_eq!(get("/a.B/C?connect=v1"), Some(Call::Unary));
        for other in ["/a.B/C", "/?connect=v2", "/?connect=v10", "/?xconnect=v1", "/?connect"] {
            assert_eq!(get(other), None, "{other}");
        }
        assert_eq!(of(Request::head("/?connect=v1")), None);
    }

    #[test]
    fn an_error_names_its_code_and_its_details() {
        let status = |code, details| RpcStatus { code, details };
        let exhausted = status(8, vec![("RetryInfo", b"\x0a\x02\x08\x3c".into())]);
        // The value that the specification shows for 60 s.
        assert_eq!(
            error(&exhausted, "too \"fast\""),
            r#"{"code":"resource_exhausted","message":"too \"fast\"","details":[{"type":"google.rpc.RetryInfo","value":"CgIIPA"}]}"#
        );
        assert_eq!(http_status(&exhausted), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            error(&status(3, vec![]), "no"),
            r#"{"code":"invalid_argument","message":"no"}"#
        );
        for code in 1..=16 {
            let http = http_status(&status(code, vec![])).as_u16();
            assert_eq!(http, CODES[usize::from(code) - 1].1);
        }
    }

    #[test]
    fn a_stream_ends_with_a_flag_a_length_and_json() {
        for length in (0..600).chain(32_700..33_000) {
            let text = "x".repeat(length);
            let ended = end_of_stream(&format!("\"{text}\"")).into_bytes();
            let size = u32::from_be_bytes(ended[1..5].try_into().unwrap());
            assert_eq!((ended[0], size as usize), (2, ended.len() - 5));
            let json = std::str::from_utf8(&ended[5..]).unwrap();
            assert_eq!(json.trim_end_matches(' '), format!(r#"{{"error":"{text}"}}"#));
        }
    }

    #[test]
    fn timeouts_are_up_to_ten_digits() {
        let read = |value: &str| {
            let call = post("application/connect+json").header("connect-timeout-ms", value);
            timeout(&call.body(()).unwrap())
        };
        assert_eq!(read("250"), Some(Duration::from_millis(250)));
        assert_eq!(read("9999999999"), Some(Duration::from_millis(9_999_999_999)));
        for wrong in ["", "-1", "+1", "1.5", "1s", "10000000000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let plain = post("application/json").header("connect-timeout-ms", "250");
        assert_eq!(timeout(&plain.body(()).unwrap()), None);
    }
}
