//! The clock of a [`Memory`](crate::Memory).

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
    },
    Callers(charge_numbers::CallerClock),
}

impl Clock {
    pub(super) fn tokio() -> Self {
        Self::Tokio { since: Instant::now(), epoch_micros: micros(system_time()) }
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
            Clock::Tokio { since, epoch_micros } => {
                checked_instant(epoch_micros.saturating_add(micros(since.elapsed())))
            }
            Clock::Callers(clock) => instant(clock()),
        }
    }
}
