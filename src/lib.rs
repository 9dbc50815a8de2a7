// The first definition of a link holds: in rustdoc these, in the repository those of the README.
// The picture travels with the page.
#![cfg_attr(feature = "redis", doc = "[cookbook]: crate::guide::cookbook")]
#![cfg_attr(feature = "redis", doc = "[failures]: crate::guide::when_redis_fails")]
#![cfg_attr(feature = "redis", doc = "[bound]: crate::guide::what_the_bound_means")]
#![cfg_attr(feature = "redis", doc = "[redisson-page]: crate::guide::from_redisson")]
#![cfg_attr(feature = "redis", doc = include_str!("../docs/compare.url"))]
#![cfg_attr(feature = "redis", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "redis"),
    doc = "Rate limiting in one process: built without the feature `redis`."
)]
//!
//! # Inside
//!
//! Arrows point one way: words know nobody, arithmetic knows words, limiters know arithmetic, the
//! tower part knows limiters by their trait, and the edges know the tower part.
//! `tests/architecture.rs` holds that as data.
// Without a feature, links to what it adds are plain text.
#![cfg_attr(
    not(all(feature = "redis", feature = "redisson")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

// Words.
mod charge;
mod decision;
mod error;
mod key;
mod quota;
mod refusal;
mod reservation;
// Arithmetic.
pub mod algorithm;
// Asking.
mod limiter;
// Tower.
pub mod future;
mod layer;
mod respond;
mod service;
mod settle;
mod shared;
// Edges.
mod grpc;
pub mod guide;
mod http;
#[cfg(feature = "redisson")]
pub mod redisson;
pub mod testing;

pub use self::charge::Charge;
pub use self::decision::{Decision, Origin, Outcome};
pub use self::error::{Error, ErrorKind};
pub use self::http::{ByHead, Head, HttpResponder, by_head};
pub use self::key::{Exempt, Global, IntoCharge, KeyExtractor, Keyed};
pub use self::layer::RateLimitLayer;
#[cfg(feature = "redis")]
pub use self::limiter::{AllAtOnce, Members, Pool, PoolBuilder, Redis};
pub use self::limiter::{
    AllInTurn, Boxed, FailOpen, Fallback, Limiter, LimiterExt, Memory, Operation, OrElse, Timeout,
};
pub use self::quota::{Quota, QuotaError, Quotas};
pub use self::refusal::Refusal;
pub use self::reservation::{Owner, Reservation};
pub use self::respond::{Raise, Respond};
pub use self::service::RateLimit;
pub use self::settle::{ActualCost, RefundIf, Settle};
