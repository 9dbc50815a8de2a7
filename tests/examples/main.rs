//! Runs of what the documents and examples show.

#![cfg(feature = "redisson")]

#[cfg(all(feature = "redisson", feature = "rustls"))]
mod quickstart;
#[cfg(all(feature = "redisson", feature = "rustls"))]
mod replay;
#[cfg(all(feature = "redisson", feature = "rustls"))]
#[path = "../support/mod.rs"]
mod support;
