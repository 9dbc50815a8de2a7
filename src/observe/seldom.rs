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
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_passes_each_second_and_the_others_are_counted() {
        let (seldom, mut seen) = (Seldom::default(), Vec::new());
        for _ in 0..25 {
            seldom.emit(|suppressed| seen.push(suppressed));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(seen, [0, 9, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_rare_always_passes() {
        let (seldom, mut passed) = (Seldom::default(), 0);
        for _ in 0..5 {
            seldom.emit(|suppressed| passed += 1 + 10 * suppressed);
            tokio::time::advance(PAUSE).await;
        }
        assert_eq!(passed, 5);
    }
}
