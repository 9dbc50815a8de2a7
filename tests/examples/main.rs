//! Runs of what the documents and examples show.

#[path = "../../examples/mock_test.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example has a `main`, and shows what users write"
)]
mod mock_test;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod quickstart;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod replay;
#[cfg(all(feature = "redisson", feature = "rustls"))]
#[path = "../support/mod.rs"]
mod support;
