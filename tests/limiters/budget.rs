//! Budgets: what a charge holds is settled, by whom, and what becomes of it if nobody does.
//!
//! `layer.rs` has time paused and no Redis. `streams.rs` is the case that budgets are made for, in
//! memory and over Redis.

#[cfg(feature = "redis")]
mod combinations;
mod layer;
#[cfg(feature = "redis")]
mod streams;

use super::*;

/// The units that are free of a key.
async fn left<L: Limiter>(limiter: &L, key: &'static str) -> u64 {
    limiter.peek(key).await.expect("a peek").remaining().expect("reported")
}
