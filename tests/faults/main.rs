//! Servers, connections, replies and rights that fail, on real servers: one, a cluster, those that
//! sentinels watch, and those with TLS.

#![cfg(feature = "redis")]

mod cluster;
mod connections;
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
mod runtimes;
mod sentinel;
mod servers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::{Concurrency, FixedWindow, SlidingLog, TokenBucket};
use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, LimiterExt, Pool, Quota, Redis};

use support::cluster::Cluster;
use support::proxy::{Fault, Proxy};
use support::sentinel::Sentinel;
use support::stats::calls;
use support::{NOWHERE, Server, fake, stats};
