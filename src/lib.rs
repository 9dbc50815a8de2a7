// The first definition of a link counts: in rustdoc these, in the repository those of the README.
// The address of the picture is a data URL, which contains the picture.
#![cfg_attr(
    all(
        feature = "axum",
        feature = "metrics",
        feature = "rustls"
    ),
    doc = include_str!("../docs/guide/links-rustdoc.txt")
)]
#![doc = include_str!("../docs/guide/links-docs-rs.txt")]
#![cfg_attr(feature = "redis", doc = include_str!("../docs/compare.url"))]
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

The module `guide` has a page for each subject."
)]
// Dependencies go one way. Values, such as `charge` and `quota`, use no other module. Algorithms
// use values, and limiters use algorithms. The layer and its service know limiters by their trait.
// HTTP and gRPC come last. `tests/architecture/modules.rs` checks each rule.
// Without a feature, links to what it adds are plain text, and some private items have no use.
#![cfg_attr(
    not(all(feature = "axum", feature = "metrics", feature = "rustls", feature = "tracing")),
    allow(dead_code, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![doc(test(attr(deny(unused_imports))))]

// Macros for the modules below.
#[macro_use]
mod debug_by_name;
#[macro_use]
mod for_each_tuple;
// Values.
mod charge;
mod decision;
mod digest;
mod error;
mod extractor;
mod quota;
mod refusal;
mod reservation;
mod waiters;
// Metrics and events.
#[cfg(not(any(feature = "metrics", feature = "tracing")))]
mod observe;
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub mod observe;
// Algorithms.
pub mod algorithm;
// Limiters.
#[macro_use]
pub mod limiter;
mod mark;
// tower.
pub mod future;
mod layer;
mod reject;
mod service;
mod settle;
mod settlement;
mod shared;
mod sync;
// HTTP, gRPC, Java, other engines, tests.
pub mod crates;
/// The functions that `fuzz/` runs.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzz {
    pub use crate::limiter::redis::fuzz_replies::{address, error, key, reply, state};
}
#[cfg(not(doctest))] // `tests` runs its blocks, which need what the crate does without
pub mod guide;
mod http;
pub mod key;
pub mod respond;
pub mod store;
pub mod testing;

pub use self::charge::Charge;
pub use self::decision::{Decision, Outcome};
pub use self::error::{Error, ErrorKind};
pub use self::extractor::Exempt;
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use self::http::by_client_ip;
pub use self::http::{HttpResponder, by_api_key, by_head};
pub use self::layer::RateLimitLayer;
pub use self::limiter::{FailOpen, Limiter, LimiterExt, Memory};
#[cfg(feature = "redis")]
pub use self::limiter::{Pool, Redis};
pub use self::quota::Quota;
pub use self::refusal::Refusal;
pub use self::service::RateLimit;
pub use self::settle::Settle;
