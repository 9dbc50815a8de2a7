//! The clock of a [`Memory`](crate::Memory).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time;

use tokio::time::Instant;

use crate::core::Error;
use crate::limiter::charge_numbers::{self, checked_instant, instant, micros, system_time};

/// A clock, in µs since the Unix epoch.
#[derive(Clone)]
pub(super) enum Clock {
    /// Tokio's clock, which was at `epoch_micros` at the instant `since`.
    Tokio {
        since: Instant,
        epoch_micros: i64,
        /// `None` if only this process's own time counts.
        unseen: Option<Arc<Unseen>>,
    },
    Callers(charge_numbers::CallerClock),
}

impl Clock {
    pub(super) fn tokio(counts_unseen: bool) -> Self {
        let epoch_micros = micros(system_time());
        let unseen = counts_unseen.then(|| Arc::new(Unseen::since_now()));
        Self::Tokio { since: Instant::now(), epoch_micros, unseen }
    }

    /// Returns true if the clock never steps back, so that an expired state stays expired.
    #[inline]
    pub(super) fn is_monotonic(&self) -> bool {
        matches!(self, Clock::Tokio { .. })
    }

    /// # Errors
    ///
    /// If the clock is past the year 2112.
    #[inline]
    pub(super) fn now(&self) -> Result<i64, Error> {
        match self {
            Clock::Tokio { since, epoch_micros, unseen } => {
                let elapsed = micros(since.elapsed());
                let unseen = unseen.as_ref().map_or(0, |unseen| unseen.time(elapsed));
                checked_instant(epoch_micros.saturating_add(elapsed.saturating_add(unseen)))
            }
            Clock::Callers(clock) => instant(clock()),
        }
    }
}

/// The time that passed for the world alone, in µs: a machine that is suspended stops tokio's
/// clock, and one that boots learns the time late. A window has to end at midnight all the same. If
/// the world's clock is set back afterwards, this one stays ahead.
pub(super) struct Unseen {
    time: AtomicI64,
    /// The time of tokio's clock from which the clocks are compared again.
    next: AtomicI64,
    /// This process's clock, and that of the world, when both were at their begin.
    begin: (time::Instant, i64),
}

/// How often the clocks are compared.
const SECOND: i64 = 1_000_000;

/// The shortest step that counts. A correction of a clock is shorter.
const SHORTEST_STEP: i64 = 10 * SECOND;

impl Unseen {
    fn since_now() -> Self {
        let begin = (time::Instant::now(), micros(system_time()));
        Self { time: AtomicI64::new(0), next: AtomicI64::new(SECOND), begin }
    }

    /// The time that passed unseen until now, by tokio's clock. It never becomes shorter.
    #[inline]
    fn time(&self, now: i64) -> i64 {
        if now >= self.next.load(Relaxed) {
            self.next.store(now + SECOND, Relaxed);
            // The world comes first: what passes in between is not unseen.
            let world = micros(system_time()).saturating_sub(self.begin.1);
            self.compare(micros(self.begin.0.elapsed()), world);
        }
        self.time.load(Relaxed)
    }

    /// Compares the times since the begin, by the clock of this process and by that of the world.
    fn compare(&self, own: i64, world: i64) {
        let unseen = world.saturating_sub(own);
        if unseen >= self.time.load(Relaxed).saturating_add(SHORTEST_STEP) {
            self.time.fetch_max(unseen, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
