//! A limiter over Redis: its calls, its keys and what it answers. And Redisson's limiter.

#![cfg(feature = "redis")]

#[cfg(feature = "redisson")]
mod all_at_once;
mod batcher;
mod batches;
mod changed_quotas;
mod decisions;
mod different_costs;
mod estimates;
mod expiry;
mod partial_refunds;
#[cfg(feature = "redisson")]
mod redisson;
mod resets;
#[cfg(feature = "redisson")]
mod several_keys;
mod tuples;
