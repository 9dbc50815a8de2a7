//! The connections of one runtime, and which of them to make or use next.

use std::sync::Arc;

use tokio::runtime;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::connection::Connection;
use super::connections::MAX_CONNECTION_WAIT;

/// The connections of one runtime.
pub(super) struct RuntimeConnections {
    pub(super) runtime: runtime::Id,
    pub(super) entries: Vec<PoolEntry>,
    /// Where the search for the next connection begins.
    next: usize,
}

/// A connection, or the attempt to make it.
#[derive(Clone, Default)]
pub(super) struct PoolEntry {
    pub(super) connection: Option<Arc<Connection>>,
    /// The begin of the attempt to connect that is under way.
    pub(super) attempt: Option<Instant>,
}

impl PoolEntry {
    pub(super) fn is_empty(&self) -> bool {
        self.connection.is_none() && self.attempt.is_none()
    }
}

impl RuntimeConnections {
    /// The connections of `runtime`.
    pub(super) fn of(runtimes: &mut Vec<Self>, runtime: runtime::Id, size: usize) -> &mut Self {
        let known = runtimes.iter().position(|connections| connections.runtime == runtime);
        let at = known.unwrap_or_else(|| {
            runtimes.push(Self { runtime, entries: vec![PoolEntry::default(); size], next: 0 });
            runtimes.len() - 1
        });
        &mut runtimes[at]
    }

    /// Begins the attempts to connect that are due: returns their entries, and when to try again.
    pub(super) fn begin_attempts(
        &mut self,
        now: Instant,
        backoff: &mut Backoff,
    ) -> (Vec<usize>, Instant) {
        let mut started = Vec::new();
        let mut retry_at = now + MAX_CONNECTION_WAIT;
        for (number, entry) in
            self.entries.iter_mut().enumerate().filter(|(_, entry)| entry.is_empty())
        {
            if let Some(later) = backoff.retry_at(now) {
                retry_at = retry_at.min(later);
                continue;
            }
            backoff.record_attempt(now);
            entry.attempt = Some(now);
            started.push(number);
        }
        (started, retry_at)
    }

    /// The connection at a place, if it is usable. Or else the usable connections take turns.
    pub(super) fn pick(&mut self, place: Option<usize>) -> Option<Arc<Connection>> {
        if let Some(connection) = place.and_then(|place| self.entries[place].connection.as_ref()) {
            return Some(Arc::clone(connection));
        }
        let (before, after) = self.entries.split_at(self.next);
        let at = after.iter().chain(before).position(|entry| entry.connection.is_some())?;
        let at = (self.next + at) % self.entries.len();
        self.next = (at + 1) % self.entries.len();
        self.entries[at].connection.clone()
    }
}
