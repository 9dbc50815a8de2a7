//! What the crate's own pool knows: the connections of each runtime, and why the last attempt to
//! connect failed.

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::backoff::Backoff;
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
    /// How often the server had changed when this state began.
    pub(super) switches: u64,
}

impl PoolState {
    /// The entries of the current runtime.
    pub(super) fn entries(&self) -> impl Iterator<Item = &PoolEntry> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let current = self.runtimes.iter().filter(move |one| Some(one.runtime) == runtime);
        current.flat_map(|connections| &connections.entries)
    }

    /// Drops the connections that are of no more use, and runtimes without any. Returns why, if it
    /// dropped any.
    #[must_use]
    pub(super) fn clean(&mut self, now: Instant) -> Option<&'static str> {
        let (mut unusable, mut closed) = (None, None);
        for entry in self.runtimes.iter_mut().flat_map(|runtime| &mut runtime.entries) {
            match entry.connection.as_ref().map(|connection| connection.state()) {
                None | Some(ConnectionState::Usable) => continue,
                Some(ConnectionState::Closed) => closed = Some("it was closed"),
                Some(ConnectionState::ReadOnly) => unusable = Some("redis is read-only"),
                Some(ConnectionState::Silent) => unusable = Some("redis stopped answering"),
            }
            entry.connection = None;
        }
        self.runtimes.retain(|runtime| !runtime.entries.iter().all(PoolEntry::is_empty));
        if let Some(reason) = unusable {
            // Connecting at once may well succeed, and lead to the same server.
            self.backoff.record_unusable(now);
            self.last_error = Some(Error::new(ErrorKind::Infrastructure, reason));
        }
        unusable.or(closed)
    }
}
