//! Puts charges into calls, sends the calls, and awaits their answers.
//!
//! In the order of the calls:
//!
//! - `pending.rs`: the caller's half. It awaits the answer until its deadline.
//! - `batcher.rs`: sends a charge at once if the limiter is idle. It passes all other charges to
//!   the worker. `config.rs` has the settings of the limiter.
//! - `worker.rs`: the task that sends charges. It owns the queue (`queue.rs`) of requests.
//!   `partitions.rs` decides which requests are next.
//! - `call.rs`: sends the requests of a call (`batch.rs`), and waits. `routed.rs` says how the
//!   client sends batches, and sends them again to a cluster.

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
