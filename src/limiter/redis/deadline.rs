//! Why an answer is missing at its deadline: the process is busy, or the server is silent.
//!
//! A timer that fires late, or a reply that arrived meanwhile, counts as load of this process,
//! which `FailOpen` does not admit. The timers of all charges count: a busy process delays some of
//! them, and reads all replies late.

use std::future::Future;
use std::pin::Pin;

use tokio::select;
use tokio::time::{Instant, timeout_at};

#[cfg(feature = "redisson")]
use super::connections::SharedConnection;
use super::pool::Pool;
use crate::limiter::grace_period::GracePeriod;
use crate::{Error, ErrorKind};

/// The instant by which an answer is needed, and what was known when the wait began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    start: Instant,
    grace_period: GracePeriod,
    pub(crate) hash_slot: u16,
    replies: u64,
    all_replies: u64,
}

impl Deadline {
    /// A deadline for a call to the server that holds `hash_slot`.
    pub(crate) fn new(at: Instant, pool: &Pool, hash_slot: u16) -> Self {
        let (start, grace_period) = (Instant::now(), GracePeriod::new(at));
        let (replies, all_replies) =
            (pool.liveness().replies(hash_slot), pool.liveness().all_replies());
        Self { at, start, grace_period, hash_slot, replies, all_replies }
    }

    /// Whether no time was left when the wait began.
    pub(super) fn is_over(&self) -> bool {
        self.at <= self.start
    }

    /// Whether the process has been too busy since the wait began.
    pub(super) fn is_busy(&self, pool: &Pool) -> bool {
        if self.grace_period.is_late() {
            pool.liveness().record_busy();
        }
        pool.liveness().was_busy_since(self.start)
    }

    /// The error of a charge that has no answer now. For one that was not sent, the replies of all
    /// servers count.
    pub(crate) fn missed_error(&self, pool: &Pool, was_sent: bool) -> Error {
        let is_busy = self.is_busy(pool);
        if let Some(error) = pool.connect_error(self.hash_slot) {
            return error;
        }
        let server_answers = pool.liveness().replies(self.hash_slot) != self.replies;
        // In a cluster, only the server of this slot may be away: then it stays silent for long.
        let others_answer = pool.liveness().all_replies() != self.all_replies;
        let is_load = others_answer && !(was_sent && pool.liveness().is_silent(self.hash_slot));
        if is_busy || server_answers || is_load {
            return Error::new(
                ErrorKind::Saturation,
                "this process asks more than it can read in time",
            );
        }
        pool.no_reply_error(self.hash_slot)
    }

    /// Waits for an answer until the deadline, and a little longer if the process is busy.
    /// `None`: there is none.
    pub(crate) async fn wait_for<F: Future>(self, mut future: Pin<&mut F>) -> Option<F::Output> {
        if let Ok(output) = timeout_at(self.at, &mut future).await {
            return Some(output);
        }
        select! {
            biased;
            output = future => Some(output),
            () = self.catch_up() => None,
        }
    }

    /// As [`wait_for`](Self::wait_for), and records what the answer says of the server, or
    /// that there is none.
    #[cfg(feature = "redisson")]
    pub(crate) async fn wait_for_reply<F: Future>(
        self,
        pool: &Pool,
        connection: &dyn SharedConnection,
        reply: Pin<&mut F>,
        was_answered: impl FnOnce(&F::Output) -> bool,
    ) -> Option<F::Output> {
        let sent = Instant::now();
        let reply = self.wait_for(reply).await;
        match &reply {
            Some(reply) if was_answered(reply) => pool.liveness().record_reply(self.hash_slot),
            Some(_) => {}
            None => connection.record_timeout(sent, self.is_busy(pool)),
        }
        reply
    }

    /// Lets the runtime read what has arrived.
    pub(super) async fn catch_up(self) {
        self.grace_period.catch_up().await;
    }
}

#[cfg(test)]
mod tests;
