#![cfg_attr(feature = "redis", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "redis"),
    doc = "\
Rate limits for any tower service, with counts in this process. The feature `redis` shares them with
other processes.

```
use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, service_fn};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Memory, Quota, RateLimitLayer, by_api_key};

// For each API key 50 requests per second, and bursts of 100. A request over the limit waits up to
// half a second. If it had to wait longer, it gets 429.
let limiter = Memory::new(\"api\", TokenBucket::new(Quota::per_second(50).burst(100)));
let limit = RateLimitLayer::new(limiter, by_api_key(\"x-api-key\"))
    .max_wait(Duration::from_millis(500));

let service = limit.layer(service_fn(async |_: Request<String>| {
    Ok::<_, Infallible>(Response::new(String::from(\"hello\")))
}));
# let _ = service;
```

The [guide](https://docs.rs/tower-sluice-guide) has a page for each subject."
)]
// Dependencies go one way: values in `core`, then `algorithm` and `observe`, `limiter`, `redis`,
// `http` and `tower`. `tests/architecture/modules.rs` checks it.
// Without a feature, links to what it adds are plain text, and some private items have no use.
#![cfg_attr(
    not(all(
        feature = "axum",
        feature = "calendar",
        feature = "metrics",
        feature = "retry",
        feature = "rustls",
        feature = "tracing"
    )),
    allow(dead_code, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![doc(test(attr(deny(unused_imports))))]

// From the lowest room up. The first one has macros for the others.
#[macro_use]
mod core;
pub mod algorithm;
#[cfg(not(any(feature = "metrics", feature = "tracing")))]
mod observe;
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub mod observe;
#[macro_use]
pub mod limiter;
mod http;
#[cfg(feature = "redis")]
pub mod redis;
mod tower;
// What users find by its use.
pub mod crates;
/// The functions that `fuzz/` runs.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzz {
    pub use crate::redis::fuzz_replies::{address, error, key, reply, state};
}
#[cfg(not(doctest))] // `tests` runs its blocks, which need what the crate does without
pub mod store;
pub mod testing;

pub use self::core::charge::KeepFree;
pub use self::core::{Charge, Decision, Error, ErrorKind, Exempt, Outcome, Quota, Refusal};
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use self::http::by_client_ip;
pub use self::http::{HttpResponder, by_api_key, by_bearer_token, by_head};
pub use self::limiter::{FailOpen, Limiter, LimiterExt, Memory};
#[cfg(feature = "redis")]
pub use self::redis::{Pool, Redis};
pub use self::tower::{RateLimit, RateLimitLayer, Settle, future, key, respond, upstream};
