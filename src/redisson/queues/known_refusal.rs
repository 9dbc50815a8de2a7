//! The last refusal under a name, and its meaning for later requests.

use std::time::Duration;

use tokio::time::Instant;

/// The time for which a refusal is believed. Others may refund permits or raise the rate meanwhile.
pub(super) const REFUSAL_LIFETIME: Duration = Duration::from_secs(1);

/// The last refusal under a name.
#[derive(Clone, Copy)]
pub(super) struct KnownRefusal {
    /// This number of permits is not free before `until`.
    pub(super) permits: u32,
    pub(super) until: Instant,
    /// The instant at which the refusal came.
    pub(super) at: Instant,
    /// The rate of the limiter: more permits are never granted.
    pub(super) rate: u64,
}

impl KnownRefusal {
    /// Returns true if it still counts.
    pub(super) fn is_believed(&self, now: Instant) -> bool {
        now < self.until.min(self.believed_until())
    }

    /// Returns the time that a caller waits for this number of permits before it asks. `None` if
    /// they may be free.
    pub(super) fn pause(&self, permits: u32, now: Instant) -> Option<Duration> {
        let end = self.until.min(self.believed_until());
        self.covers(permits, now).then(|| end - now)
    }

    /// Returns the instant at which neither the refusal nor its lifetime lasts any longer.
    pub(super) fn last_end(&self) -> Instant {
        self.until.max(self.believed_until())
    }

    /// Replaces it with the `next` refusal. It stays if it still counts and is of fewer permits: it
    /// then covers the next one too.
    pub(super) fn update(&mut self, next: Self) {
        self.rate = next.rate;
        if !self.covers(next.permits, next.at) || next.permits <= self.permits {
            *self = next;
        }
    }

    /// Returns true if this number of permits is known not to be free.
    fn covers(&self, permits: u32, now: Instant) -> bool {
        self.is_believed(now) && permits >= self.permits && u64::from(permits) <= self.rate
    }

    fn believed_until(&self) -> Instant {
        self.at + REFUSAL_LIFETIME
    }
}
