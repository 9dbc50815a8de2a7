//! The limiter that many processes share: one script call decides.
//!
//! How a charge is decided: `limiter.rs` converts it to numbers. `key.rs` and `buckets.rs` name its
//! key. `pending.rs` is the caller's half: it passes a `request.rs` to `batcher.rs` and awaits the
//! answer until the `deadline.rs`. A charge that finds the limiter idle is sent at once. All others
//! wait, each as a `queued.rs`, in the `queue.rs` that `worker.rs` owns, and `partitions.rs` says
//! which are next. `call.rs` sends each `batch.rs`, which `script_call.rs` puts together, with
//! `eval.rs`. That runs `script.rs` over a connection of `pool.rs`. `reply.rs` reads the decisions,
//! and `error.rs` classifies errors. `liveness.rs` tells a silent server from a busy process.
//!
//! Where connections come from: `address.rs` reads an address, and `builder.rs` holds a pool's
//! settings. `own_pool.rs` keeps its connections in a `pool_state.rs`, and `runtime_connections.rs`
//! holds those of one runtime. They lead to a `target.rs`: one `server.rs`, or the primary that a
//! `sentinel.rs` names. `resolver.rs` finds its IP address. A server says in its `greeting.rs` what
//! it is, and `probe.rs` finds out whether it expects TLS, which `tls.rs` sets up. `health.rs`
//! tells which `connection.rs` is usable, and `backoff.rs` when to connect again. `cluster/` keeps
//! such a pool for each server of a cluster. `bb8_pool.rs` uses a pool that the application owns,
//! and `given_connection.rs` one connection. All implement the trait in `connections.rs`.

mod address;
mod all_at_once;
mod assembly;
mod backoff;
mod batch;
mod batcher;
mod bb8_pool;
mod buckets;
mod builder;
mod call;
mod cluster;
mod config;
mod connection;
mod connections;
mod deadline;
mod error;
mod eval;
mod future;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod given_connection;
mod greeting;
mod health;
mod key;
mod limiter;
mod liveness;
mod members;
mod outcome;
mod own_pool;
mod partitions;
mod pending;
mod pool;
mod pool_state;
mod probe;
mod queue;
mod queued;
mod reply;
mod request;
mod resolver;
mod runtime_connections;
mod script;
mod script_call;
#[cfg(feature = "redisson")]
pub(crate) mod sending;
mod sentinel;
mod server;
#[cfg(test)]
mod silent;
mod target;
#[cfg_attr(not(feature = "rustls"), path = "no_tls.rs")]
mod tls;
#[cfg(feature = "policies")]
mod together;
mod worker;

pub use all_at_once::{AllAtOnce, AllAtOnceFuture};
pub use builder::PoolBuilder;
pub use future::RedisFuture;
#[cfg(all(feature = "policies", feature = "redisson"))]
pub(crate) use key::push_verbatim_or_digest;
#[cfg(any(feature = "policies", feature = "redisson"))]
pub(crate) use limiter::DEFAULT_DECISION_TIMEOUT;
pub use limiter::Redis;
pub use members::Members;
pub use pool::Pool;
pub use script::texts as script_texts;
#[cfg(feature = "policies")]
pub(crate) use together::Together;
