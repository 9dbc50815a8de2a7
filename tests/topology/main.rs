//! Many servers: clusters, sentinels, and addresses that lead elsewhere than they say.

#![cfg(feature = "redis")]

mod addresses;
mod cluster;
mod sentinel;
#[path = "../support/mod.rs"]
mod support;
