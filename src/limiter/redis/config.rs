//! The settings of a limiter in Redis, as its batches use them.

use tokio::time::Instant;

use super::pool::Pool;
use super::queue::Queued;
use super::request::Request;
use super::script::Script;
use crate::limiter::terms::Clock;

/// A limiter's settings.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) pool: Pool,
    pub(super) script: Script,
    /// What the names of a charge's keys begin with: one for each quota.
    pub(super) key_prefixes: Vec<String>,
    /// The limiter's own rule, as the script reads it.
    pub(super) rule: Vec<i64>,
    pub(super) clock: Option<Clock>,
    /// The most charges in one call.
    pub(super) max_batch_size: usize,
    /// The most calls at the same time, for each connection.
    pub(super) max_in_flight: usize,
    /// The most charges that wait to be sent.
    pub(super) queue_capacity: usize,
}

impl Config {
    /// A charge whose answer nobody awaits.
    pub(super) fn unattended(&self, request: Request, deadline: Instant) -> Queued {
        let slot = self.pool.slot(&request.key);
        Queued { request, slot, deadline, reply_to: None, place: None }
    }
}
