//! Puts charges into calls, sends the calls, and awaits their answers.
//!
//! In the order of the calls:
//!
//! - `pending.rs`: the caller's half. It awaits the answer until its deadline.
//! - `batcher.rs`: sends a charge at once if the limiter is idle, which `busy.rs` knows. It passes
//!   all others to the worker. `config.rs` holds the settings of the limiter.
//! - `worker.rs`: the task that sends them. It owns the queue (`queue.rs`) of requests
//!   (`queued.rs`). `partitions.rs` decides which are next.
//! - `call.rs`: sends the batches of a call (`batch.rs`), and waits. `eval.rs` runs a script on a
//!   server, and `routed.rs` in a cluster.

mod batch;
mod batcher;
mod busy;
mod call;
mod config;
mod eval;
mod partitions;
mod pending;
mod queue;
mod queued;
mod routed;
mod worker;

pub(crate) use self::batcher::Batcher;
pub(crate) use self::config::Config;
#[cfg(feature = "redisson")]
pub(crate) use self::eval::eval;
pub(crate) use self::pending::Pending;
pub(crate) use self::queued::{CompletedRequest, QueuedRequest};
