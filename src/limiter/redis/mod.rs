//! The limiter that many processes share: one script call decides.
//!
//! How a charge is decided, in the order of the calls:
//!
//! - `limiter.rs`: the limiter and its settings, which `config.rs` holds. It converts a charge to a
//!   `request.rs` about a key, which `key.rs` names. `future.rs` is the decision.
//!   `all_at_once.rs` and `together.rs` let several limiters decide in one call.
//! - `pending.rs`: the caller's half. It awaits the answer until the `deadline.rs`.
//! - `batcher.rs`: sends a charge at once that finds the limiter idle, and passes on all others.
//! - `worker.rs`: the task that sends them. It owns the `queue.rs` of `queued.rs`; `partitions.rs`
//!   says which are next.
//! - `call.rs`: sends each `batch.rs`, and waits. `outcome.rs` is what comes of it.
//! - `script_call.rs`: puts a script call together and distributes the answers, which `reply.rs`
//!   reads. `eval.rs` runs the `script.rs`, which `assembly.rs` puts together. `error.rs` finds the
//!   kind of an error, and `liveness.rs` tells a silent server from a busy process.
//!
//! Where connections come from:
//!
//! - `pool.rs`: what limiters share. It hides which of the sources below implements the traits in
//!   `connections.rs`. `builder.rs` makes it, from what `address.rs` reads.
//! - `own_pool.rs`: connections of the crate's own. `pool_state.rs` and `runtime_connections.rs`
//!   hold them; `backoff.rs` says when to connect again.
//! - `target.rs`: where they lead, to one `server.rs` or to the primary that a `sentinel.rs` names.
//!   `resolver.rs` finds its IP address, or `dialer.rs` opens the socket by the application's own
//!   function. `tls.rs` sets up TLS, and `probe.rs` finds out whether the server expects it. It
//!   says in its `greeting.rs` what it is. `login.rs` is the user there.
//! - `connection.rs`: one of them. `health.rs` says whether it is usable.
//! - `cluster/`: such a pool for each server of a cluster. `routed.rs` sends calls to where it says.
//! - `bb8_pool.rs`: a pool of the application's own. `given_connection.rs`: one connection.

mod all_at_once;
mod batch;
mod batcher;
mod busy;
mod call;
mod client;
mod config;
mod deadline;
mod eval;
mod future;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod key;
mod limiter;
mod partitions;
mod pending;
mod queue;
mod queued;
mod routed;
mod script;
#[cfg(feature = "policies")]
mod together;
mod worker;

pub use all_at_once::{AllAtOnce, AllAtOnceFuture, Members};
pub use client::{Pool, PoolBuilder};
pub use future::RedisFuture;
#[cfg(all(feature = "policies", feature = "redisson"))]
pub(crate) use key::push_verbatim_or_digest;
#[cfg(any(feature = "policies", feature = "redisson"))]
pub(crate) use limiter::DEFAULT_DECISION_TIMEOUT;
pub use limiter::Redis;
pub use script::texts as script_texts;
#[cfg(feature = "policies")]
pub(crate) use together::Together;

// What it takes to send one call, for the limiter of Redisson's keys.
#[cfg(feature = "redisson")]
pub(crate) use client::error::{from_failed_call, met_read_only};
#[cfg(all(test, feature = "redisson"))]
pub(crate) use client::hash_slot;
#[cfg(feature = "redisson")]
pub(crate) use client::{MAX_TIMEOUT, SharedConnection};
#[cfg(feature = "redisson")]
pub(crate) use deadline::{Deadline, Stage};
#[cfg(feature = "redisson")]
pub(crate) use eval::{LATE_REPLY_TIMEOUT, eval, is_reply};
#[cfg(feature = "redisson")]
pub(crate) use script::{Script, malformed_reply};
