//! Permits that were acquired from one limiter.

use super::RRateLimiter;
use crate::{Error, Reservation};

/// Permits that were acquired. Dropped, they stay taken, and expire after an interval.
#[derive(Debug)]
#[must_use = "permits that are dropped stay taken until they expire"]
pub struct Permits {
    pub(super) limiter: RRateLimiter,
    pub(super) reservation: Reservation,
    /// How many may be held: one number, or several where the reply to a release was lost.
    pub(super) held: Vec<u64>,
}

impl Permits {
    /// The number of permits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.held.first().copied().unwrap_or(0)
    }

    /// Releases some of these permits, and returns how many. It returns 0 if they have expired, or
    /// if another caller's `release(n)` released them. Then none is left.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked. Try again: no permit is released twice.
    pub async fn release(&mut self, permits: u64) -> Result<u64, Error> {
        while let Some(&held) = self.held.first() {
            let part = permits.min(held);
            if part == 0 {
                break;
            }
            // Until the reply comes, either number may be stored.
            let rest = held - part;
            let is_new = rest > 0 && !self.held.contains(&rest);
            if is_new {
                self.held.push(rest);
            }
            let freed = self.limiter.redisson.inner.refund(&self.reservation, part, held).await?;
            if freed > 0 {
                self.held =
                    Vec::from_iter(Some(held.saturating_sub(freed)).filter(|rest| *rest > 0));
                return Ok(freed);
            }
            if is_new {
                self.held.pop();
            }
            self.held.remove(0);
        }
        Ok(0)
    }
}
