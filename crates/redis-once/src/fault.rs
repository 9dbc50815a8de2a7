//! Decides why an answer is missing at its deadline: the server failed, or is set up wrongly, or
//! neither is known.
//!
//! Only a bad connection blames a server: one that was refused, reset, closed, or read-only, or
//! that is silent. A connection is silent if bytes were written to it, and since then none came,
//! and none wait in the system to be read. A busy process leaves its replies there. So its load
//! never looks like silence, whichever of its threads stands still. See `wire.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use tokio::select;
use tokio::time::{Instant, timeout_at};

use super::address::Host;
use super::error::{Error, ErrorKind};
use super::lock::lock;
use super::on_time::{is_late, read_arrived};
use super::times::{MAX_ERROR_AGE, MAX_SILENCE};

/// The facts of a source of connections about the server of a hash slot. They are collected only
/// when an answer is missing, not for each call.
#[derive(Debug, Default)]
pub struct Facts {
    /// The last failure to connect, or the loss of a silent or read-only connection, if there was
    /// no connection since.
    pub(super) failure: Option<Failed>,
    /// The longest time for which one of its connections of this runtime is silent.
    pub(super) silent_for: Duration,
}

/// A failure to connect, and its instant, if known.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) at: Option<Instant>,
}

impl Failed {
    /// Returns the error. An old one says its age: since then, the server may work again.
    fn error_now(&self) -> Error {
        let age = self.at.map(|at| at.elapsed()).filter(|age| *age > MAX_ERROR_AGE);
        let aged = |age: Duration| format!("{}, {} s ago", self.error, age.as_secs());
        age.map_or_else(|| self.error.clone(), |age| self.error.clone().with_message(aged(age)))
    }
}

/// The stage of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It waits for the server of its slot, or for its reply.
    #[default]
    Waiting,
    /// It waits for the server that a redirect names for this call alone, or for its reply.
    Redirected(Host),
    /// Servers of a cluster have rejected it since this instant. It waits to be sent again.
    TurnedAway(Instant),
}

/// The stage of a call, set by the task that sends it, and read by its caller.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Stage>);

impl Progress {
    /// Sets the stage.
    pub fn set(&self, stage: &Stage) {
        lock(&self.0).clone_from(stage);
    }

    /// Returns the stage.
    pub fn stage(&self) -> Stage {
        lock(&self.0).clone()
    }
}

/// The instant by which an answer is needed, and the start of the wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The instant by which an answer is needed.
    pub at: Instant,
    start: Instant,
    /// The hash slot whose server is asked.
    pub hash_slot: u16,
}

impl Deadline {
    /// Makes a deadline for a call to the server that holds `hash_slot`.
    pub fn new(at: Instant, hash_slot: u16) -> Self {
        Self::since(Instant::now(), at, hash_slot)
    }

    /// Makes a deadline for a wait that begins at `start`, which is now.
    pub fn since(start: Instant, at: Instant, hash_slot: u16) -> Self {
        Self { at, start, hash_slot }
    }

    /// Returns true if no time was left when the wait began.
    pub fn is_over(&self) -> bool {
        self.at <= self.start
    }

    /// Returns the error of a charge that has no answer now: the first rule that fits decides.
    pub(super) fn missed_error(&self, facts: &Facts, stage: &Stage) -> Error {
        let is_late = self.is_late();
        // A process that is late may have had no time for another attempt: then only a fresh
        // failure counts. In one that is on time it counts until the next attempt ends, however old
        // it is. Rare charges may never see an attempt that lasts as long as a silent server takes,
        // and have to fail open. If the server is set up wrongly, their errors have to say so.
        let since = self.start.checked_sub(MAX_ERROR_AGE).filter(|_| is_late);
        if let Some(failure) = facts.failure.as_ref().filter(|failure| failure.at >= since) {
            return failure.error_now();
        }
        let wait = self.start.elapsed();
        // A charge that was first rejected in the second half may have been sent late.
        if !is_late && matches!(stage, Stage::TurnedAway(since) if since.elapsed() >= wait / 2) {
            let message = "the cluster is moving the key to another server";
            return Error::new(ErrorKind::Infrastructure, message);
        }
        // The whole machine may have stood still, or this process wrote late: then a short silence
        // does not count. Over a connection of the application, a reply passes three tasks before
        // anybody knows of it, and each may wait for as long as this one did after its deadline.
        let late = self.at.elapsed();
        let enough = if is_late { MAX_SILENCE.max(wait / 2) + 3 * late } else { wait / 2 };
        if !wait.is_zero() && facts.silent_for >= enough {
            return Error::new(ErrorKind::Infrastructure, "redis did not answer in time");
        }
        let message = "the time ended before redis answered, and no connection to it is known to \
            be bad: this process or redis has too much to do";
        Error::new(ErrorKind::Saturation, message)
    }

    /// Returns true if the wait ended so late that the process must be busy.
    pub(super) fn is_late(&self) -> bool {
        is_late(self.at)
    }

    /// Waits for an answer until the deadline, and slightly longer for one that has arrived.
    /// Returns `None` if no answer came.
    pub async fn wait_for<F: Future + ?Sized>(&self, mut future: Pin<&mut F>) -> Option<F::Output> {
        if let Ok(output) = timeout_at(self.at, &mut future).await {
            return Some(output);
        }
        select! {
            biased;
            output = future => Some(output),
            () = read_arrived(self.at) => None,
        }
    }

    /// Lets the runtime read the replies that have arrived.
    pub async fn catch_up(self) {
        read_arrived(self.at).await;
    }
}

#[cfg(test)]
mod tests;
