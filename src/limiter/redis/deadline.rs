//! Why an answer is missing at its deadline: the process is busy, or the server is silent.
//!
//! A timer that fires late, or a reply that arrived meanwhile, counts as load, which never opens the gate. The timers
//! of all charges count: a busy process delays some of them, and reads all replies late.

use std::future::Future;
use std::pin::Pin;

use tokio::select;
use tokio::time::{Instant, timeout_at};

use super::pool::Pool;
use crate::limiter::overtime::Overtime;
use crate::{Class, Error};

/// The instant by which an answer is needed, and what was known when the wait began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    start: Instant,
    overtime: Overtime,
    slot: u16,
    replies: u64,
}

impl Deadline {
    /// A deadline for a call to the server that holds `slot`.
    pub(super) fn new(at: Instant, pool: &Pool, slot: u16) -> Self {
        let (start, overtime) = (Instant::now(), Overtime::new(at));
        Self { at, start, overtime, slot, replies: pool.replies(slot) }
    }

    /// Records a reply that came in time.
    pub(super) fn met(&self, pool: &Pool) {
        pool.record_reply(self.slot);
    }

    /// The error of a charge that has no answer now.
    pub(super) fn missed(&self, pool: &Pool) -> Error {
        if self.overtime.is_late() {
            pool.record_busy();
        }
        if pool.was_busy_since(self.start) || pool.replies(self.slot) != self.replies {
            return Error::new(
                Class::Saturation,
                "this process asks more than it can read in time",
            );
        }
        pool.no_reply()
    }

    /// Waits for an answer until the deadline, and a little longer if the process is busy. `None`: there is none.
    pub(super) async fn answer<F: Future>(self, mut answer: Pin<&mut F>) -> Option<F::Output> {
        if let Ok(answer) = timeout_at(self.at, &mut answer).await {
            return Some(answer);
        }
        select! {
            biased;
            answer = answer => Some(answer),
            () = self.catch_up() => None,
        }
    }

    /// Lets the runtime read what has arrived.
    pub(super) async fn catch_up(self) {
        self.overtime.catch_up().await;
    }
}

#[cfg(test)]
mod tests;
