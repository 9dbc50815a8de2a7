//! Permits of one limiter, and the methods that acquire and release them.

use std::time::Duration;

use tower_sluice::limiter::Reservation;
use tower_sluice::{Error, ErrorKind, LimiterExt, Refusal};

use super::messages::PermitCall;
use super::rate::INEXACT;
use super::rate_limiter::RRateLimiter;

/// Acquired permits. If they are dropped, they stay taken, and expire after an interval.
#[derive(Debug)]
#[must_use = "permits that are dropped stay taken until they expire"]
pub struct Permits {
    limiter: RRateLimiter,
    reservation: Reservation,
    /// The possible numbers of held permits: several if the reply to a release was lost.
    held: Vec<u64>,
}

impl Permits {
    /// The number of permits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.held.first().copied().unwrap_or(0)
    }

    /// Releases some of these permits, and returns their number. It returns 0 if they have expired,
    /// or if another caller's `release(n)` released them. Then no permit is left.
    ///
    /// # Errors
    ///
    /// If Redis cannot be reached. You can try again with the same number: no permit is released
    /// twice. Another number is another release. If the permits have expired meanwhile, the second
    /// try may still return their number.
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
            } else if let [_, left] = self.held[..]
                && left == rest
            {
                // The only release without a reply was of as many, and was made.
                self.held = vec![rest];
                return Ok(part);
            }
            self.held.remove(0);
        }
        Ok(0)
    }
}

impl RRateLimiter {
    /// `tryAcquire(n)`: takes permits if they are free now.
    ///
    /// # Errors
    ///
    /// If `permits` is not from 1 to 2^32 - 1 or exceeds the rate, if the limiter is not
    /// configured, or if Redis cannot be reached.
    pub async fn try_acquire(&self, permits: u64) -> Result<Option<Permits>, Error> {
        self.try_acquire_for(permits, Duration::ZERO).await
    }

    /// `tryAcquire(n, timeout)`: takes permits as soon as they are free, and waits up to
    /// `timeout`. A longer wait is refused at once.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_for(
        &self,
        permits: u64,
        timeout: Duration,
    ) -> Result<Option<Permits>, Error> {
        if permits == 0 {
            return Err(Error::new(ErrorKind::Request, "the number of permits must be at least 1"));
        }
        match self.redisson.acquire(self.charge(permits).max_wait(timeout)).await {
            Ok(mut decision) => {
                let limiter = self.clone();
                let permits = |reservation: Reservation| Permits {
                    limiter,
                    held: vec![reservation.cost()],
                    reservation,
                };
                Ok(decision.take_reservation().map(permits))
            }
            Err(Refusal::Denied(decision)) if decision.retry_after().is_some() => Ok(None),
            Err(Refusal::Denied(_)) => {
                let message = "Requested permits amount cannot exceed defined rate";
                Err(Error::new(ErrorKind::Request, message))
            }
            Err(Refusal::Undecided(error) | Refusal::NoKey(error)) => Err(error),
            Err(refusal) => Err(Error::new(ErrorKind::State, refusal.to_string())),
        }
    }

    /// `acquire(n)`: takes permits as soon as they are free. The wait has no limit.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire(&self, permits: u64) -> Result<Permits, Error> {
        loop {
            if let Some(permits) = self.try_acquire_for(permits, Duration::MAX).await? {
                return Ok(permits);
            }
        }
    }

    /// `release(n)`: releases the oldest permits that have not expired, even those of other
    /// callers. Returns their number. To release your own permits, use [`Permits::release`].
    ///
    /// # Errors
    ///
    /// If the limiter is not configured, or Redis cannot be reached. Thousands of grants take
    /// several calls: if a later call fails, the number so far is returned.
    pub async fn release(&self, permits: u64) -> Result<u64, Error> {
        let released = self.release_oldest(permits).await;
        self.redisson.inner.queues.forget_refusal(self.name());
        released
    }

    async fn release_oldest(&self, permits: u64) -> Result<u64, Error> {
        let mut freed = 0;
        while freed < permits {
            // One call releases at most thousands of members.
            let rest = (permits - freed).min(INEXACT);
            let request = PermitCall::new(&self.keys, "release", [rest.to_string()]);
            let inner = &self.redisson.inner;
            let deadline = inner.deadline();
            let call = || inner.sender.call(&request, deadline);
            let reply = inner.with_default_rate(&self.keys, deadline, call).await;
            let [more, may_be_more] = match reply.and_then(|reply| reply.numbers()) {
                // A caller that tried again would release as many of others once more.
                Err(_) if freed > 0 => break,
                numbers => numbers?,
            };
            // For every reply of a server, the loop ends, and counts at most the requested permits.
            freed += more.max(0).cast_unsigned().min(rest);
            if may_be_more == 0 || more <= 0 {
                break;
            }
        }
        Ok(freed)
    }
}
