//! The connections of one runtime, and which of them to make or use next.

use std::sync::Arc;
use std::time::Duration;

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

/// An attempt to connect that takes longer gets another beside it: a network that swallowed the
/// first may carry the next, long before the first is given up.
const NEXT_ATTEMPT_AFTER: Duration = Duration::from_millis(300);

/// So many attempts of one entry are under way at most, however long each of them may take.
const MAX_ATTEMPTS: usize = 4;

/// A connection, or the attempts to make it.
#[derive(Clone, Default)]
pub(super) struct PoolEntry {
    pub(super) connection: Option<Arc<Connection>>,
    /// The begin of the oldest attempt to connect that is under way.
    pub(super) attempt: Option<Instant>,
    /// The begin of the newest one.
    newest: Option<Instant>,
    under_way: usize,
}

impl PoolEntry {
    pub(super) fn is_empty(&self) -> bool {
        self.connection.is_none() && self.attempt.is_none()
    }

    /// True if another attempt may be needed.
    fn may_attempt(&self) -> bool {
        self.connection.is_none() && self.under_way < MAX_ATTEMPTS
    }

    /// The instant at which the next attempt may begin, if not now.
    fn retry_at(&self, now: Instant) -> Option<Instant> {
        self.newest.map(|begun| begun + NEXT_ATTEMPT_AFTER).filter(|next| *next > now)
    }

    fn begin_attempt(&mut self, now: Instant) {
        self.attempt.get_or_insert(now);
        self.newest = Some(now);
        self.under_way += 1;
    }

    /// Ends the attempt that began then.
    pub(super) fn end_attempt(&mut self, begun: Instant) {
        self.under_way -= 1;
        if self.under_way == 0 {
            (self.attempt, self.newest) = (None, None);
        } else if self.attempt == Some(begun) {
            self.attempt = self.newest;
        }
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
            self.entries.iter_mut().enumerate().filter(|(_, entry)| entry.may_attempt())
        {
            if let Some(later) = entry.retry_at(now).max(backoff.retry_at(now)) {
                retry_at = retry_at.min(later);
                continue;
            }
            backoff.record_attempt(now);
            entry.begin_attempt(now);
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

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_gets_another_beside_it() {
        let (mut runtimes, mut backoff) = (Vec::new(), Backoff::default());
        let all = RuntimeConnections::of(&mut runtimes, Handle::current().id(), 1);
        let begun = Instant::now();
        assert_eq!(all.begin_attempts(begun, &mut backoff).0, [0]);
        let next = begun + NEXT_ATTEMPT_AFTER;
        let soon = next - Duration::from_millis(1);
        assert_eq!(all.begin_attempts(soon, &mut backoff), (Vec::new(), next));
        assert_eq!(all.begin_attempts(next, &mut backoff).0, [0]);
        let entry = &mut all.entries[0];
        assert_eq!(entry.attempt, Some(begun));
        entry.end_attempt(begun);
        assert_eq!(entry.attempt, Some(next));
        entry.end_attempt(next);
        assert!(entry.is_empty());
    }

    /// A network that swallows everything collects few of them, whatever the time to connect is.
    #[tokio::test(start_paused = true)]
    async fn few_attempts_are_under_way_at_once() {
        let (mut runtimes, mut backoff) = (Vec::new(), Backoff::default());
        let all = RuntimeConnections::of(&mut runtimes, Handle::current().id(), 1);
        let (begun, mut started) = (Instant::now(), 0);
        for number in 0..100 {
            let now = begun + number * NEXT_ATTEMPT_AFTER;
            started += all.begin_attempts(now, &mut backoff).0.len();
        }
        assert_eq!(started, MAX_ATTEMPTS);
        all.entries[0].end_attempt(begun);
        let later = begun + 100 * NEXT_ATTEMPT_AFTER;
        assert_eq!(all.begin_attempts(later, &mut backoff).0, [0]);
    }
}
