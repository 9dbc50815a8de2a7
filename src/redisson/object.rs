//! One limiter, with all that Java's object does.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::cmd;
use tokio::time::Instant;

use super::Redisson;
use super::keys::Keys;
use super::rate::{INEXACT, LONGEST, Rate, millis};
use super::reply::{NO_CONFIGURATION, ScriptReply};
use super::request::Request;
use crate::{Charge, Error, ErrorKind, Limiter, LimiterExt, Refusal, Reservation};

/// One of Redisson's limiters: Java's `RRateLimiter`. Made by
/// [`Redisson::rate_limiter`]; cheap to clone.
///
/// Every call's error says why Redis could not be asked, or that the limiter has no configuration
/// yet, in Java's words: `RateLimiter is not initialized`. No call is sent twice but one for
/// permits, which are taken once all the same.
#[derive(Clone)]
pub struct RRateLimiter {
    redisson: Redisson,
    keys: Keys,
}

impl RRateLimiter {
    pub(super) fn new(redisson: Redisson, keys: Keys) -> Self {
        Self { redisson, keys }
    }

    /// `getName`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.keys.name()
    }

    /// `trySetRate`: configures the limiter if it is not, and tells whether it was not.
    ///
    /// # Errors
    ///
    /// If the rate cannot be, or Redis cannot be asked.
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool, Error> {
        let anyhow = String::from("0");
        self.yes("try_set", [anyhow].into_iter().chain(rate.arguments()?)).await
    }

    /// `setRate`: configures the limiter, and forgets what was taken of it.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        self.set(false, false, rate).await.map(drop)
    }

    /// `setRate` with `keepState`: what was taken stays taken. Where the new rate is below that,
    /// nothing is admitted until enough has expired.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn set_rate_keeping_state(&self, rate: Rate) -> Result<(), Error> {
        self.set(false, true, rate).await.map(drop)
    }

    /// `updateRate`: as [`set_rate`](Self::set_rate) if the limiter is configured, and
    /// tells whether it is.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn update_rate(&self, rate: Rate) -> Result<bool, Error> {
        self.set(true, false, rate).await
    }

    /// `updateRate` with `keepState`: as [`set_rate_keeping_state`](Self::set_rate_keeping_state)
    /// if the limiter is configured, and tells whether it is.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn update_rate_keeping_state(&self, rate: Rate) -> Result<bool, Error> {
        self.set(true, true, rate).await
    }

    /// `getConfig`: the configuration, if there is a whole one.
    ///
    /// # Errors
    ///
    /// If one is stored that cannot be, or Redis cannot be asked.
    pub async fn config(&self) -> Result<Option<Rate>, Error> {
        let reply = self.call("config", [""; 0]).await?;
        if reply.outcome == NO_CONFIGURATION {
            return Ok(None);
        }
        reply.configured()?.numbers().map(|numbers| Some(Rate::from_reply(numbers)))
    }

    /// `availablePermits`: how many would be had now.
    ///
    /// # Errors
    ///
    /// If the limiter is not configured, or Redis cannot be asked.
    pub async fn available_permits(&self) -> Result<u64, Error> {
        let decision = self.redisson.check(&self.charge(0)).await?;
        Ok(decision.remaining().unwrap_or_default())
    }

    /// `tryAcquire(n)`: takes permits if they are free now.
    ///
    /// # Errors
    ///
    /// If `permits` is not from 1 to 2^32 - 1 or exceeds the rate, the limiter is not configured,
    /// or Redis cannot be asked.
    pub async fn try_acquire(&self, permits: u64) -> Result<Option<Permits>, Error> {
        self.try_acquire_for(permits, Duration::ZERO).await
    }

    /// `tryAcquire(n, timeout)`: takes permits as soon as they are free, waiting for so long; a
    /// longer wait is refused at once.
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
            return Err(Error::new(ErrorKind::Request, "at least 1 permit is acquired"));
        }
        match self.redisson.acquire(self.charge(permits).max_wait(timeout)).await {
            Ok(mut decision) => {
                let limiter = self.clone();
                let permits = |reservation: Reservation| Permits {
                    limiter,
                    held: vec![reservation.cost()],
                    reservation,
                };
                Ok(decision.reservation().map(permits))
            }
            Err(Refusal::Denied(decision)) if decision.retry_after().is_some() => Ok(None),
            Err(Refusal::Denied(_)) => {
                let message = "Requested permits amount cannot exceed defined rate";
                Err(Error::new(ErrorKind::Request, message))
            }
            Err(Refusal::Undecided(error)) => Err(error),
            Err(refusal @ Refusal::NoKey) => {
                Err(Error::new(ErrorKind::Request, "the limiter has no name").with_source(refusal))
            }
        }
    }

    /// `acquire(n)`: takes permits as soon as they are free, however long that takes.
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

    /// `release(n)`: gives back permits of whoever took the oldest that have not expired, and tells
    /// how many. To give back your own, [`Permits::release`].
    ///
    /// # Errors
    ///
    /// If the limiter is not configured, or Redis cannot be asked.
    pub async fn release(&self, permits: u64) -> Result<u64, Error> {
        let released = self.release_oldest(permits).await;
        self.redisson.inner.queues.forget_refusal(self.name());
        released
    }

    async fn release_oldest(&self, permits: u64) -> Result<u64, Error> {
        let mut freed = 0;
        while freed < permits {
            // One call gives back thousands of members at the most.
            let rest = (permits - freed).min(INEXACT);
            let request = Request::new(&self.keys, "release", [rest.to_string()]);
            let inner = &self.redisson.inner;
            let deadline = inner.deadline();
            let call = || inner.sender.call(&request, deadline);
            let reply = inner.with_default_rate(&self.keys, deadline, call).await?;
            let [more, may_be_more] = reply.numbers()?;
            // Whatever a server answers, this ends, and tells no more than was asked for.
            freed += more.max(0).cast_unsigned().min(rest);
            if may_be_more == 0 || more <= 0 {
                break;
            }
        }
        Ok(freed)
    }

    /// `delete`: deletes the configuration and what was taken, of this client and of everybody;
    /// tells whether there was anything.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self.yes("each", ["UNLINK"]).await;
        self.redisson.inner.queues.forget_refusal(self.name());
        deleted
    }

    /// `expire(duration)`: deletes the limiter after so long; tells whether it exists.
    ///
    /// # Errors
    ///
    /// If the time is longer than 2^52 ms, or Redis cannot be asked.
    pub async fn expire(&self, after: Duration) -> Result<bool, Error> {
        let after = millis(Duration::from_millis(ceil(after)));
        let after = after.ok_or_else(|| Error::new(ErrorKind::Request, "longer than 2^52 ms"))?;
        self.yes("each", ["PEXPIRE", &after.to_string()]).await
    }

    /// `expire(instant)`: deletes the limiter then, by the server's clock; tells whether it exists.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn expire_at(&self, instant: SystemTime) -> Result<bool, Error> {
        let at = ceil(instant.duration_since(UNIX_EPOCH).unwrap_or_default()).min(LONGEST);
        self.yes("each", ["PEXPIREAT", &at.to_string()]).await
    }

    /// `clearExpire`: keeps the limiter; tells whether it would have been deleted.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn clear_expire(&self) -> Result<bool, Error> {
        self.yes("each", ["PERSIST"]).await
    }

    /// `remainTimeToLive`: when the configuration will be deleted, if it will.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn remain_time_to_live(&self) -> Result<Option<Duration>, Error> {
        let rest = self.number("PTTL").await?;
        Ok(u64::try_from(rest).ok().map(Duration::from_millis))
    }

    /// `isExists`: whether there is a configuration.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn exists(&self) -> Result<bool, Error> {
        Ok(self.number("EXISTS").await? == 1)
    }

    fn charge(&self, permits: u64) -> Charge {
        Charge::new(self.name().to_owned()).cost(permits)
    }

    async fn set(&self, only_if_exists: bool, keep: bool, rate: Rate) -> Result<bool, Error> {
        let flags = [only_if_exists, keep].map(|flag| u8::from(flag).to_string());
        let done = self.yes("set", flags.into_iter().chain(rate.arguments()?)).await;
        self.redisson.inner.queues.forget_refusal(self.name());
        done
    }

    async fn call<T: AsRef<[u8]>>(
        &self,
        operation: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<ScriptReply, Error> {
        let request = Request::new(&self.keys, operation, arguments);
        self.redisson.inner.sender.call(&request, self.deadline()).await
    }

    /// Asks what is answered by yes or no.
    async fn yes<T: AsRef<[u8]>>(
        &self,
        operation: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<bool, Error> {
        let [answer] = self.call(operation, arguments).await?.configured()?.numbers()?;
        Ok(answer == 1)
    }

    async fn number(&self, command: &str) -> Result<i64, Error> {
        let command = cmd(command).arg(self.name()).take();
        self.redisson.inner.sender.command(&self.keys, command, self.deadline()).await
    }

    fn deadline(&self) -> Instant {
        self.redisson.inner.deadline()
    }
}

impl fmt::Debug for RRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name is a charge's key, which may be a secret.
        let name = format_args!("<{} bytes>", self.name().len());
        f.debug_struct("RRateLimiter").field("name", &name).finish_non_exhaustive()
    }
}

/// Permits that were acquired. Dropped, they stay taken, and expire after an interval.
#[derive(Debug)]
#[must_use = "permits that are dropped stay taken until they expire"]
pub struct Permits {
    limiter: RRateLimiter,
    reservation: Reservation,
    /// How many are held: one number, and more where the answer to a release was lost.
    held: Vec<u64>,
}

impl Permits {
    /// How many they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.held.first().copied().unwrap_or(0)
    }

    /// Gives back so many of these, and tells how many were: none if they have expired, or were
    /// released by another's `release(n)`; then none is left to give back.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked. It may be tried again: none is given back twice.
    pub async fn release(&mut self, permits: u64) -> Result<u64, Error> {
        while let Some(&held) = self.held.first() {
            let part = permits.min(held);
            if part == 0 {
                break;
            }
            // Until the answer is heard, either may be what is stored.
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

/// Milliseconds, rounded up: no key goes early.
fn ceil(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
