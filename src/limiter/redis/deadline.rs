//! Why an answer is missing at its deadline: the process is busy, or the server is silent.
//!
//! A busy process fires timers before it reads replies that have already arrived. So before it gives up, a caller lets
//! the runtime catch up; and a timer that fires late, or a reply that arrived meanwhile, counts as load, which never
//! opens the gate.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::select;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};

use super::pool::Pool;
use crate::{Class, Error};

/// A timer that fires later than half the time there was, or than this, means that the process is busy.
const LEAST_SLACK: Duration = Duration::from_millis(10);

/// How many times the runtime gets to run everything that is ready: a reply passes from the socket to the task that
/// reads it, to the task that distributes it, to the caller.
const ROUNDS: usize = 5;

/// The instant by which an answer is needed, and what was known when the wait began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    slack: Duration,
    slot: u16,
    replies: u64,
}

impl Deadline {
    /// A deadline for a call to the server that holds `slot`.
    pub(super) fn new(at: Instant, pool: &Pool, slot: u16) -> Self {
        let slack = (at.saturating_duration_since(Instant::now()) / 2).max(LEAST_SLACK);
        Self { at, slack, slot, replies: pool.replies(slot) }
    }

    /// Records a reply that came in time.
    pub(super) fn met(&self, pool: &Pool) {
        pool.record_reply(self.slot);
    }

    /// The error of a charge that has no answer now.
    pub(super) fn missed(&self, pool: &Pool) -> Error {
        if self.is_late() || pool.replies(self.slot) != self.replies {
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

    /// Lets the runtime read what has arrived. Ends early once the process has turned out to be busy.
    pub(super) async fn catch_up(self) {
        for _ in 0..ROUNDS {
            // The runtime polls its sockets before it continues here.
            yield_now().await;
            if self.is_late() {
                return;
            }
        }
        // The operating system may have paused the thread that reads.
        sleep(Duration::from_millis(1)).await;
        yield_now().await;
    }

    fn is_late(&self) -> bool {
        self.at.elapsed() > self.slack
    }
}
