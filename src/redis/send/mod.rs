//! Puts charges into calls, sends the calls, and awaits their answers.
//!
//! `pending.rs` is the caller's half. `batcher.rs` sends a charge at once if the limiter is idle,
//! and passes all others to `worker.rs`, which owns the `queue.rs`; `partitions.rs` decides which
//! are next. `call.rs` sends the requests of a call (`batch.rs`), and waits.

mod batch;
mod batcher;
mod call;
mod config;
mod partitions;
mod pending;
mod queue;
mod routed;
mod worker;

pub(crate) use self::batch::{CompletedRequest, QueuedRequest};
pub(crate) use self::batcher::Batcher;
pub(crate) use self::config::Config;
pub(crate) use self::pending::Pending;
