//! How fast a body moves while its caller is waited for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::port::connections::{millis, now};
use crate::port::timeouts::Timeouts;

/// The time for which a caller was waited for, and the bytes that have moved. Times count as
/// [`now`] does.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Since when it is waited for.
    since: AtomicU64,
    /// The time for which it was waited for before.
    waited: AtomicU64,
    bytes: AtomicU64,
}

impl Pace {
    /// The caller is waited for, from now on.
    pub(crate) fn begin(&self) {
        self.since.store(now(), Relaxed);
    }

    /// The caller is not waited for any more.
    pub(crate) fn end(&self) {
        self.waited.fetch_add(now().saturating_sub(self.since.load(Relaxed)), Relaxed);
    }

    /// So many bytes have moved.
    pub(crate) fn moves(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// The instant at which a caller that is waited for is too slow: it has `body` in all, and a
    /// second for each `body_rate` bytes.
    pub(crate) fn deadline(&self, timeouts: &Timeouts) -> u64 {
        let bytes = self.bytes.load(Relaxed).saturating_mul(1_000);
        let Some(earned) = bytes.checked_div(timeouts.body_rate) else { return u64::MAX };
        let time = earned.saturating_add(millis(timeouts.body_timeout));
        let left = time.saturating_sub(self.waited.load(Relaxed));
        self.since.load(Relaxed).saturating_add(left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bytes_earn_time_and_waiting_costs_it() {
        let body_timeout = Duration::from_secs(10);
        let timeouts = Timeouts { body_timeout, body_rate: 500, ..Timeouts::default() };
        let pace = Pace::default();
        let at = |since| {
            pace.since.store(since, Relaxed);
            pace.deadline(&timeouts)
        };
        assert_eq!(at(5_000), 15_000);
        pace.moves(2_000);
        assert_eq!(at(5_000), 19_000);
        pace.waited.store(3_000, Relaxed);
        assert_eq!(at(9_000), 20_000);
        pace.waited.store(60_000, Relaxed);
        assert_eq!(at(9_000), 9_000);
        let any = Timeouts { body_rate: 0, ..timeouts };
        assert_eq!(pace.deadline(&any), u64::MAX);
    }
}
