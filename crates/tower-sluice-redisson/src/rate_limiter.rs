//! One limiter: Java's `RRateLimiter`. `permits.rs` has the methods that take and release permits.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tower_sluice::{Charge, Error, ErrorKind, Limiter};

use super::Redisson;
use super::keys::Keys;
use super::messages::PermitCall;
use super::messages::{NO_CONFIGURATION, ScriptReply};
use super::rate::{MAX_MILLIS, Rate, millis};

/// One of Redisson's limiters: Java's `RRateLimiter`.
///
/// [`Redisson::rate_limiter`] makes it. It is cheap to clone.
///
/// Each method returns an error if Redis is away or answers with an error. If the limiter has no
/// configuration, the error is of kind [`Configuration`](ErrorKind::Configuration), with Java's
/// text: `RateLimiter is not initialized`. Only a request for permits may be sent twice, and the
/// script grants it once.
#[derive(Clone)]
pub struct RRateLimiter {
    pub(super) redisson: Redisson,
    pub(super) keys: Keys,
}

impl RRateLimiter {
    pub(super) fn new(redisson: Redisson, keys: Keys) -> Self {
        Self { redisson, keys }
    }

    /// `getName`: the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.keys.name()
    }

    /// `trySetRate`: configures the limiter if it has no configuration. Returns true if it did.
    ///
    /// # Errors
    ///
    /// If the rate is out of range, or Redis cannot be reached.
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool, Error> {
        let always = String::from("0");
        self.call_bool("try_set", [always].into_iter().chain(rate.arguments()?)).await
    }

    /// `setRate`: configures the limiter, and forgets the taken permits.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        self.set(false, false, rate).await.map(drop)
    }

    /// `setRate` with `keepState`: taken permits stay taken. If they exceed the new rate, no permit
    /// is granted until enough of them have expired.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn set_rate_keeping_state(&self, rate: Rate) -> Result<(), Error> {
        self.set(false, true, rate).await.map(drop)
    }

    /// `updateRate`: like [`set_rate`](Self::set_rate) if the limiter is configured. Returns true
    /// if it is.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn update_rate(&self, rate: Rate) -> Result<bool, Error> {
        self.set(true, false, rate).await
    }

    /// `updateRate` with `keepState`: like [`set_rate_keeping_state`](Self::set_rate_keeping_state)
    /// if the limiter is configured. Returns true if it is.
    ///
    /// # Errors
    ///
    /// As [`try_set_rate`](Self::try_set_rate).
    pub async fn update_rate_keeping_state(&self, rate: Rate) -> Result<bool, Error> {
        self.set(true, true, rate).await
    }

    /// `getConfig`: the configuration, if there is a complete one.
    ///
    /// # Errors
    ///
    /// If the stored configuration is invalid, or Redis cannot be reached.
    pub async fn config(&self) -> Result<Option<Rate>, Error> {
        let reply = self.call("config", [""; 0]).await?;
        if reply.outcome == NO_CONFIGURATION {
            return Ok(None);
        }
        reply.configured()?.numbers().map(|numbers| Some(Rate::from_reply(numbers)))
    }

    /// `availablePermits`: the number of permits that are free now.
    ///
    /// # Errors
    ///
    /// If the limiter is not configured, or Redis cannot be reached.
    pub async fn available_permits(&self) -> Result<u64, Error> {
        let decision = self.redisson.check(&self.charge(0)).await?;
        Ok(decision.remaining().unwrap_or_default())
    }

    /// `delete`: deletes the configuration and the permits, both this client's and the shared ones.
    /// Returns true if there were any.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self.call_bool("each", ["UNLINK"]).await;
        self.redisson.inner.queues.forget_refusal(self.name());
        deleted
    }

    /// `expire(duration)`: deletes the limiter after this time. Returns true if the limiter exists.
    ///
    /// # Errors
    ///
    /// If the time is longer than 2^52 ms, or Redis cannot be reached.
    pub async fn expire(&self, after: Duration) -> Result<bool, Error> {
        let after = millis(Duration::from_millis(ceil_millis(after)));
        let after =
            after.ok_or_else(|| Error::new(ErrorKind::Request, "the time exceeds 2^52 ms"))?;
        self.call_bool("each", ["PEXPIRE", &after.to_string()]).await
    }

    /// `expire(instant)`: deletes the limiter at this instant of the server's clock. Returns true
    /// if the limiter exists.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn expire_at(&self, instant: SystemTime) -> Result<bool, Error> {
        let at =
            ceil_millis(instant.duration_since(UNIX_EPOCH).unwrap_or_default()).min(MAX_MILLIS);
        self.call_bool("each", ["PEXPIREAT", &at.to_string()]).await
    }

    /// `clearExpire`: keeps the limiter forever. Returns true if it had an expiry.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn clear_expire(&self) -> Result<bool, Error> {
        self.call_bool("each", ["PERSIST"]).await
    }

    /// `remainTimeToLive`: the time until the configuration expires, if it has an expiry.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn remain_time_to_live(&self) -> Result<Option<Duration>, Error> {
        Ok(u64::try_from(self.time_to_live().await?).ok().map(Duration::from_millis))
    }

    /// `isExists`: returns true if there is a configuration.
    ///
    /// # Errors
    ///
    /// If Redis cannot be asked.
    pub async fn exists(&self) -> Result<bool, Error> {
        Ok(self.time_to_live().await? != -2)
    }

    pub(super) fn charge(&self, permits: u64) -> Charge {
        Charge::new(self.name().to_owned()).cost(permits)
    }

    async fn set(&self, only_if_exists: bool, keep: bool, rate: Rate) -> Result<bool, Error> {
        let flags = [only_if_exists, keep].map(|flag| u8::from(flag).to_string());
        let done = self.call_bool("set", flags.into_iter().chain(rate.arguments()?)).await;
        self.redisson.inner.queues.forget_refusal(self.name());
        done
    }

    async fn call<T: AsRef<[u8]>>(
        &self,
        operation: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<ScriptReply, Error> {
        let request = PermitCall::new(&self.keys, operation, arguments);
        self.redisson.inner.sender.call(&request, self.deadline()).await
    }

    /// Calls an operation that returns 1 or 0.
    async fn call_bool<T: AsRef<[u8]>>(
        &self,
        operation: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<bool, Error> {
        let [answer] = self.call(operation, arguments).await?.configured()?.numbers()?;
        Ok(answer == 1)
    }

    /// Returns what `PTTL` says of the configuration: -1 if it has no expiry, -2 if there is none.
    async fn time_to_live(&self) -> Result<i64, Error> {
        let [left] = self.call("time_to_live", [""; 0]).await?.numbers()?;
        Ok(left)
    }

    fn deadline(&self) -> Instant {
        self.redisson.inner.deadline()
    }
}

impl fmt::Debug for RRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name may be a charge's key, which may be a secret.
        f.debug_struct("RRateLimiter")
            .field("name", &format_args!("<{} bytes>", self.name().len()))
            .finish_non_exhaustive()
    }
}

/// Converts to milliseconds, rounded up, so that no key expires early.
fn ceil_millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
