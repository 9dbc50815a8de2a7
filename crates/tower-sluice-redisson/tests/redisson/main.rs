//! Redisson's limiter: its steps, its object, what it stores, who waits for it, what misbehaves,
//! and the bound that it keeps.

mod bench;
mod bound;
mod cluster;
mod faults;
mod object;
mod state;
mod steps;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_sluice::{Charge, Decision, ErrorKind, Limiter, LimiterExt, Outcome, Pool, Quota};
use tower_sluice_redisson::{Rate, Redisson};

use support::Server;
use support::dice::times;
use support::faults::eventually;
use support::proxy::{Fault, Proxy};

use self::bench::Acquired::{Exceeds, Granted, Wait};
use self::bench::{BASE, Bench, client, message, rate};
