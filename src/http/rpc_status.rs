//! The status of a refused RPC: a code, and details in protobuf. gRPC and Connect write it in their
//! own ways.

use std::iter;
use std::time::Duration;

use http::StatusCode;

use super::http_refusal::HttpRefusal;
use crate::core::{ErrorKind, Refusal};

const INVALID_ARGUMENT: u8 = 3;
const PERMISSION_DENIED: u8 = 7;
pub(super) const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

/// The reason and the domain in an `ErrorInfo`.
const ERROR_INFO: [&str; 2] = ["RATE_LIMIT_EXCEEDED", env!("CARGO_PKG_NAME")];

pub(super) struct RpcStatus {
    pub(super) code: u8,
    /// The names of messages in `google.rpc`, and the messages in protobuf.
    pub(super) details: Vec<(&'static str, Vec<u8>)>,
}

impl RpcStatus {
    /// Returns the status of a refusal. `denied` is the code of a denial. It has a `RetryInfo` if
    /// the caller may come back, a `QuotaFailure` if the policies are known, and an `ErrorInfo` if
    /// it is a denial.
    pub(super) fn new(refusal: &HttpRefusal, denied: u8) -> Self {
        let code = match refusal.refusal() {
            Refusal::Denied(_) => denied,
            Refusal::Undecided(error) if error.kind() == ErrorKind::Request => INVALID_ARGUMENT,
            Refusal::Undecided(_) => UNAVAILABLE,
            Refusal::NoKey(_) => code(refusal.status()),
        };
        let mut details = Vec::new();
        if let Some(millis) = retry_millis(refusal) {
            details.push(("RetryInfo", retry_info(millis)));
        }
        let mut failure = Vec::new();
        for policy in refusal.violated_policies() {
            let mut violation = Vec::new();
            bytes(&mut violation, 1, policy.as_bytes());
            bytes(&mut failure, 1, &violation);
        }
        if !failure.is_empty() {
            details.push(("QuotaFailure", failure));
        }
        if let Refusal::Denied(_) = refusal.refusal() {
            let mut info = Vec::new();
            bytes(&mut info, 1, ERROR_INFO[0].as_bytes());
            bytes(&mut info, 2, ERROR_INFO[1].as_bytes());
            details.push(("ErrorInfo", info));
        }
        Self { code, details }
    }

    /// Encodes it as a `google.rpc.Status` with this message.
    pub(super) fn encoded(&self, message: &str) -> Vec<u8> {
        let mut status = Vec::new();
        number(&mut status, 1, self.code.into());
        bytes(&mut status, 2, message.as_bytes());
        for (name, value) in &self.details {
            let mut any = Vec::new();
            bytes(&mut any, 1, format!("type.googleapis.com/google.rpc.{name}").as_bytes());
            bytes(&mut any, 2, value);
            bytes(&mut status, 3, &any);
        }
        status
    }
}

/// Returns the code of a request without a key from its HTTP status.
fn code(status: StatusCode) -> u8 {
    match status {
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        _ => INVALID_ARGUMENT,
    }
}

/// Returns the time until the caller may try again in whole milliseconds, rounded up.
pub(super) fn retry_millis(refusal: &HttpRefusal) -> Option<u64> {
    let nanos = refusal.retry_after()?.as_nanos();
    Some(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

fn retry_info(millis: u64) -> Vec<u8> {
    let (mut delay, mut info) = (Vec::new(), Vec::new());
    // The longest duration is 10,000 years.
    number(&mut delay, 1, (millis / 1_000).min(315_576_000_000));
    number(&mut delay, 2, millis % 1_000 * 1_000_000);
    bytes(&mut info, 1, &delay);
    info
}

/// Adds a field with a number; 0 is not sent.
fn number(message: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        message.push(field << 3);
        varint(message, value);
    }
}

fn bytes(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Reads the delay of the `RetryInfo` in an encoded `google.rpc.Status`.
pub(super) fn retry_delay(status: &[u8]) -> Option<Duration> {
    let info = fields(status).filter(|field| field.number == 3).find_map(|any| {
        let part = |number| Some(fields(any.bytes).find(|field| field.number == number)?.bytes);
        part(1)?.ends_with(b"/google.rpc.RetryInfo").then(|| part(2).unwrap_or_default())
    })?;
    let delay = fields(info).find(|field| field.number == 1).map_or(&[][..], |field| field.bytes);
    let part = |number| fields(delay).find(|field| field.number == number).map_or(0, |f| f.value);
    // A number that is negative is a very large one.
    let (seconds, nanos) = (i64::try_from(part(1)).ok()?, u32::try_from(part(2)).ok()?);
    (nanos < 1_000_000_000).then(|| Duration::new(seconds.unsigned_abs(), nanos))
}

struct Field<'a> {
    number: u64,
    value: u64,
    bytes: &'a [u8],
}

/// Reads the fields of a message, up to one that is malformed.
fn fields(mut message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    iter::from_fn(move || {
        let tag = read_varint(&mut message)?;
        let (mut value, mut length) = (0, 0);
        match tag & 7 {
            0 => value = read_varint(&mut message)?,
            1 => length = 8,
            2 => length = usize::try_from(read_varint(&mut message)?).ok()?,
            5 => length = 4,
            _ => return None,
        }
        Some(Field { number: tag >> 3, value, bytes: message.split_off(..length)? })
    })
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
