//! Answers of refused Connect-RPC requests: errors in JSON.
//!
//! A Connect client takes the code of an error from the body.

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

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectCall {
    Unary,
    /// With the content type of the request, which its answer has, too.
    Stream(HeaderValue),
}

impl ConnectCall {
    /// Returns the kind of a request. `None` if it is not Connect. A unary `POST` of JSON has the
    /// content type of any program, so it is Connect by its version alone.
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
            None => {
                let is_unary = match request.headers().get(VERSION) {
                    Some(version) => version == "1",
                    // No other protocol has this type.
                    None => matches!(strip(format, b"proto")?, [] | [b';', ..]),
                };
                is_unary.then_some(Self::Unary)
            }
        }
    }
}

/// Returns the time that a caller of Connect waits for its answer, if it states one: up to 10
/// digits.
pub(super) fn timeout<B>(request: &Request<B>) -> Option<Duration> {
    let digits = request.headers().get("connect-timeout-ms")?.to_str().ok()?;
    let is_number = digits.len() <= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || ConnectCall::of(request).is_none() {
        return None;
    }
    digits.parse().ok().map(Duration::from_millis)
}

pub(super) fn http_status(status: &RpcStatus) -> StatusCode {
    let (_, http) = CODES[usize::from(status.code) - 1];
    StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

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
    // Bodies are made of text, and JSON may end with spaces: until the bytes of the length are
    // text.
    let length = |json: &str| (json.len() as u32).to_be_bytes();
    while !length(&json).is_ascii() {
        json.push(' ');
    }
    let head = [2].into_iter().chain(length(&json)).map(char::from);
    head.collect::<String>() + &json
}

#[cfg(test)]
mod tests;
