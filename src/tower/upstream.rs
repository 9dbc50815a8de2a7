//! Reads what an upstream asks of its callers, for clients.
//!
//! If an upstream refuses a client, it says when to come back: [`retry_after`] reads the time from
//! a response, and [`grpc_retry_after`] from the trailers of gRPC.
//! [`RateLimitLayer::obey_upstream`](crate::RateLimitLayer::obey_upstream) pauses the key for it.
//! With the feature `retry`, `ObeyRetryAfter` is a policy for tower's `retry`. See [clients].
//!
//! [clients]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/clients/

#[cfg(feature = "retry")]
pub use crate::http::ObeyRetryAfter;
pub use crate::http::{ObeyUpstream, grpc_retry_after, retry_after};
