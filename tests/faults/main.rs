//! Servers, connections, replies and rights that fail, on real servers: one, a cluster, those that
//! sentinels watch, and those with TLS.

#![cfg(feature = "redis")]

mod addresses;
mod cluster;
mod connections;
mod cut_replies;
mod durability;
#[cfg(feature = "redisson")]
mod error_texts;
mod given_connection;
mod given_pools;
mod least_rights;
mod ready;
#[cfg(feature = "redisson")]
mod replies;
mod rest;
mod rotation;
mod runtimes;
mod sentinel;
mod servers;
#[cfg(feature = "rustls")]
mod tls;
