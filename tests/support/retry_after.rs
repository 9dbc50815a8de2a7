//! A fuzzed function: what an upstream asks of its callers. `fuzz/` runs it, and a test from seeds.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Response};
use tower_sluice::upstream;

/// The fields that are read.
pub const FIELDS: [&str; 10] = [
    "retry-after",
    "date",
    "ratelimit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "grpc-status-details-bin",
    "grpc-retry-pushback-ms",
    "retry-after-ms",
];

/// Reads each line as a field, whose name is chosen by its first byte. No time is longer than the
/// longest that is believed, and a response that does not refuse asks for none.
pub fn retry_after(bytes: &[u8]) {
    let mut response = Response::new(());
    response.headers_mut().insert("grpc-status", HeaderValue::from_static("8"));
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((first, value)) = line.split_first() else { continue };
        let name = HeaderName::from_static(FIELDS[usize::from(*first) % FIELDS.len()]);
        if let Ok(value) = HeaderValue::from_bytes(value) {
            response.headers_mut().append(name, value);
        }
    }
    for status in [200, 429, 503, 404] {
        *response.status_mut() = status.try_into().expect("a status");
        for longest in [Duration::ZERO, Duration::from_millis(1_500), Duration::MAX] {
            let wait = upstream::retry_after(&response, longest);
            assert!(wait.is_none_or(|wait| wait <= longest && status != 404), "{wait:?}");
            let unbounded = upstream::retry_after(&response, Duration::MAX);
            assert_eq!(wait.is_some(), unbounded.is_some());
        }
    }
}
