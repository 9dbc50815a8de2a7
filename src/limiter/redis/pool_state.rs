//! What the crate's own pool knows: the connections of each runtime, and why the last attempt to
//! connect failed.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::backoff::{Backoff, any_hangs};
use super::error::before_asking;
use super::health::ConnectionState;
use super::runtime_connections::{PoolEntry, RuntimeConnections};
use crate::{Error, ErrorKind};

/// The state of a pool.
#[derive(Default)]
pub(super) struct PoolState {
    pub(super) runtimes: Vec<RuntimeConnections>,
    pub(super) backoff: Backoff,
    /// Why the last attempt to connect failed. None after a success.
    pub(super) last_error: Option<Error>,
    /// When the last attempt failed.
    pub(super) failed: Option<Instant>,
    /// The time that the last attempt took.
    pub(super) last_took: Duration,
    /// How often the server or the user had changed when this state began.
    pub(super) switches: u64,
}

impl PoolState {
    /// The entries of the current runtime.
    pub(super) fn entries(&self) -> impl Iterator<Item = &PoolEntry> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let current = self.runtimes.iter().filter(move |one| Some(one.runtime) == runtime);
        current.flat_map(|connections| &connections.entries)
    }

    /// Returns whether any runtime has a connection.
    pub(super) fn is_connected(&self) -> bool {
        let mut entries = self.runtimes.iter().flat_map(|runtime| &runtime.entries);
        entries.any(|entry| entry.connection.is_some())
    }

    /// Whether an attempt takes clearly longer than the one that failed last. Then the server
    /// hangs, and why that one failed says nothing any more.
    pub(super) fn attempt_hangs(&self) -> bool {
        let attempts = self.entries().filter_map(|entry| entry.attempt);
        any_hangs(attempts, self.last_error.as_ref(), self.last_took)
    }

    /// Drops the connections that are of no more use, and runtimes without any. Returns which was
    /// lost and why, if any was.
    #[must_use]
    pub(super) fn clean(&mut self, now: Instant) -> Option<Lost> {
        let (mut unusable, mut closed) = (None, None);
        for entry in self.runtimes.iter_mut().flat_map(|runtime| &mut runtime.entries) {
            let Some(connection) = &entry.connection else { continue };
            let since = connection.useless_since().min(now);
            let lost = |reason| Some(Lost { address: connection.server(), reason, since });
            match connection.state() {
                ConnectionState::Usable => continue,
                ConnectionState::Closed => closed = lost("it was closed"),
                ConnectionState::ReadOnly => unusable = lost("redis is read-only"),
                ConnectionState::Silent => unusable = lost("redis stopped answering"),
            }
            entry.connection = None;
        }
        self.runtimes.retain(|runtime| !runtime.entries.iter().all(PoolEntry::is_empty));
        if let Some(Lost { address, reason, since }) = &unusable {
            // Connecting at once may well succeed, and lead to the same server.
            self.backoff.record_unusable(*since);
            let cause = Error::new(ErrorKind::Infrastructure, *reason);
            (self.last_error, self.failed) = (Some(no_connection(address, cause)), Some(*since));
        }
        unusable.or(closed)
    }
}

/// A connection that was lost.
pub(super) struct Lost {
    /// The address of its server.
    pub(super) address: String,
    pub(super) reason: &'static str,
    /// The instant since which it is useless.
    pub(super) since: Instant,
}

/// The error of a failed attempt to connect to `address`, of which nobody asked a decision.
pub(super) fn no_connection(address: &str, cause: Error) -> Error {
    before_asking(format!("no connection to {address}"), cause)
}

#[cfg(test)]
mod tests {
    use super::super::backoff::HANGS_AFTER;
    use super::*;

    /// A mistake in the configuration is hidden, so that it is not taken for the reason why a
    /// server is silent since.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_hides_neither_a_fault_of_the_server_nor_load() {
        let mut entry = PoolEntry::default();
        entry.attempt = Some(Instant::now());
        let mut runtimes = Vec::new();
        RuntimeConnections::of(&mut runtimes, Handle::current().id(), 1).entries[0] = entry;
        let mut state = PoolState { runtimes, ..PoolState::default() };
        for (kind, hangs) in [
            (ErrorKind::Configuration, true),
            (ErrorKind::Infrastructure, false),
            (ErrorKind::Saturation, false),
        ] {
            state.last_error = Some(Error::new(kind, "why"));
            assert!(!state.attempt_hangs());
            tokio::time::advance(HANGS_AFTER).await;
            assert_eq!(state.attempt_hangs(), hangs, "{kind:?}");
            let entry = &mut state.runtimes[0].entries[0];
            entry.attempt = Some(Instant::now());
        }
    }
}
