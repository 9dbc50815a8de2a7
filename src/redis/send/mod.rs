//! Puts charges into calls, sends the calls, and awaits their answers.
//!
//! `pending.rs` is the caller's half. `batcher.rs` sends a charge at once if the limiter is idle,
//! and passes all others to `worker.rs`, which owns the `queue.rs`; `partitions.rs` decides which
//! are next, and `window.rs` how many calls are in flight. `call.rs` sends the requests of a call
//! (`batch.rs`), and waits. The answer comes back through `answer_place.rs`, or the caller's time
//! ends (`deadlines.rs`).

mod answer_place;
mod batch;
mod batcher;
mod call;
mod config;
mod deadlines;
mod partitions;
mod pending;
mod queue;
mod routed;
mod window;
mod worker;

pub(crate) use self::batch::{QueuedRequest, ScriptAnswer};
pub(crate) use self::batcher::Batcher;
pub(crate) use self::config::{Config, QueueRoom};
pub(crate) use self::pending::Pending;
