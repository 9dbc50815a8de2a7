//! Runs of what the documents and examples show: each example as a user starts it.

#[cfg(all(feature = "redisson", feature = "rustls"))]
mod axum;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod compare;
#[path = "../../examples/mock_test/main.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example has a `main`, and shows what users write"
)]
mod mock_test;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod outbound;
#[cfg(all(feature = "policies", feature = "redisson", feature = "rustls"))]
mod policies_from_redis;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod prove;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod quickstart;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod replay;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod tonic;
