//! Many servers: clusters, sentinels, addresses that lead elsewhere than they say, and servers with
//! TLS.

#![cfg(feature = "redis")]

mod addresses;
mod cluster;
mod sentinel;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "rustls")]
mod tls;
