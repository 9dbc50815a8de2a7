//! Limits repeated events to one a second, with the number of suppressed events.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// The time for which an event of one kind is not repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// Emits at most one event of a kind each second.
#[derive(Debug)]
pub(crate) struct Seldom {
    start: Instant,
    /// The earliest instant of the next event, in µs since the start.
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Self {
        Self { start: Instant::now(), next: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }
}

impl Seldom {
    /// Calls `emit` with the number of suppressed events, unless the last event was emitted less
    /// than a second ago.
    pub(crate) fn emit(&self, emit: impl FnOnce(u64)) {
        let now = self.start.elapsed().as_micros() as u64;
        let next = self.next.load(Relaxed);
        let after = now + PAUSE.as_micros() as u64;
        let passes =
            next <= now && self.next.compare_exchange(next, after, Relaxed, Relaxed).is_ok();
        if passes {
            emit(self.suppressed.swap(0, Relaxed));
        } else {
            self.suppressed.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
