//! A short time after a deadline, in which an answer still counts.
//!
//! A busy process fires timers before it reads replies that have already arrived. So a caller that
//! waits for a reply lets the runtime catch up before it gives up.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use super::worker_threads::WorkerThreads;

#[cfg(feature = "redis")]
use crate::{Error, ErrorKind};

/// The runtime runs everything that is ready this many times.
const MAX_ROUNDS: usize = 6;

/// This many suffice for a reply: it passes from the socket to the task that reads it, to the task
/// that distributes it, to the caller. Where they take long, the process is busy.
const MIN_ROUNDS: usize = 3;

/// A timer that fires later than this shows that the process is busy.
const SLACK: Duration = Duration::from_millis(10);

/// A thread that runs makes a turn within this time after the deadline, unless the process is busy.
const MAX_TURN: Duration = Duration::from_millis(5);

/// The step in which timers fire.
const TICK: Duration = Duration::from_millis(1);

/// A deadline, and the time after it in which an answer still counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct GracePeriod {
    deadline: Instant,
}

impl GracePeriod {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline }
    }

    #[cfg(feature = "redis")]
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the deadline passed so long ago that the process must be busy.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.elapsed() > SLACK
    }

    /// The error of an attempt to connect that was to end by the deadline. Timers that fire late
    /// say nothing about the server.
    #[cfg(feature = "redis")]
    pub(super) fn unless_late(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Infrastructure || !self.is_late() {
            return error;
        }
        let message = "this process is too busy to connect in time";
        Error::new(ErrorKind::Saturation, message).with_source(error)
    }

    /// Lets the runtime read what has arrived. Ends early if the process is busy, and late if a
    /// thread stands still that may have to read it.
    pub(super) async fn catch_up(self) {
        let threads = WorkerThreads::now();
        let have_run = || threads.as_ref().is_none_or(WorkerThreads::have_run);
        for round in 1..=MAX_ROUNDS {
            // The runtime polls its sockets before it continues here.
            yield_now().await;
            if round >= MIN_ROUNDS && self.is_late() {
                return;
            }
        }
        sleep(TICK).await;
        yield_now().await;
        if have_run() {
            return;
        }
        while !have_run() && self.deadline.elapsed() < MAX_TURN {
            sleep(TICK).await;
        }
        // What it held up needs time for its answer. One that stands still on makes this late.
        let end = if have_run() { SLACK - 2 * TICK } else { SLACK + TICK };
        sleep_until(self.deadline + end).await;
        yield_now().await;
    }
}
