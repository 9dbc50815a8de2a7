//! A limiter's configuration: Java's `RateLimiterConfig`.

use std::time::Duration;

use tower_sluice::{Error, ErrorKind, Quota};

/// The first number of permits that Lua cannot count exactly.
pub(super) const INEXACT: u64 = 1 << 53;

/// The longest interval in ms, so that sums of instants stay exact.
pub(super) const MAX_MILLIS: u64 = 1 << 52;

/// The clients whose permits are counted together: Java's `RateType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateType {
    /// `OVERALL`: the permits of all clients.
    Overall,
    /// `PER_CLIENT`: the permits of each client id separately.
    PerClient,
}

/// A limiter's configuration: at most this number of permits in any stretch of an interval.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice_redisson::{Rate, RateType};
///
/// let rate = Rate::overall(100, Duration::from_secs(1)).keep_alive(Duration::from_secs(3_600));
/// assert_eq!((rate.rate_type(), rate.permits()), (RateType::Overall, 100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rate {
    rate_type: RateType,
    permits: u64,
    interval: Duration,
    keep_alive: Option<Duration>,
}

impl Rate {
    /// `RateType.OVERALL`: one budget for all clients.
    ///
    /// The rate is from 1 to 2^53 - 1 permits, the interval from 1 to 2^52 whole milliseconds. A
    /// value out of range is an error of the method that uses the rate.
    pub const fn overall(permits: u64, interval: Duration) -> Self {
        Self { rate_type: RateType::Overall, permits, interval, keep_alive: None }
    }

    /// `RateType.PER_CLIENT`: a budget for each client id.
    pub const fn per_client(permits: u64, interval: Duration) -> Self {
        Self { rate_type: RateType::PerClient, permits, interval, keep_alive: None }
    }

    /// Sets the time after which an unused limiter is deleted: Java's `keepAliveTime`. It must be
    /// at least the interval. Default: never.
    pub const fn keep_alive(self, time: Duration) -> Self {
        let keep_alive = if time.is_zero() { None } else { Some(time) };
        Self { keep_alive, ..self }
    }

    /// Returns the clients whose permits are counted together.
    #[must_use]
    pub const fn rate_type(&self) -> RateType {
        self.rate_type
    }

    /// The permits in each interval.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// The interval.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// The time after which an unused limiter is deleted, if one is set.
    #[must_use]
    pub const fn keep_alive_time(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// The arguments of the script.
    ///
    /// # Errors
    ///
    /// If a value is out of range.
    pub(super) fn arguments(&self) -> Result<[String; 4], Error> {
        let refuse = |message| Err(Error::new(ErrorKind::Configuration, message));
        if !(1..INEXACT).contains(&self.permits) {
            return refuse("a rate must be from 1 to 2^53 - 1 permits");
        }
        let (Some(interval), Some(keep_alive)) =
            (millis(self.interval), millis(self.keep_alive.unwrap_or_default()))
        else {
            return refuse("times must be whole milliseconds, up to 2^52");
        };
        if interval == 0 {
            return refuse("the interval is 0");
        }
        if self.keep_alive.is_some() && keep_alive < interval {
            return refuse(
                "The parameter keepAliveTime should be greater than or equal to rateInterval",
            );
        }
        let rate_type = match self.rate_type {
            RateType::Overall => 0,
            RateType::PerClient => 1,
        };
        Ok([self.permits, interval, rate_type, keep_alive].map(|number| number.to_string()))
    }

    /// Reads the numbers that the script returns.
    pub(super) fn from_reply([permits, interval, rate_type, keep_alive]: [i64; 4]) -> Self {
        let millis = |millis: i64| Duration::from_millis(millis.max(0).cast_unsigned());
        let rate_type = if rate_type == 0 { RateType::Overall } else { RateType::PerClient };
        let (permits, interval) = (permits.max(0).cast_unsigned(), millis(interval));
        Self { rate_type, permits, interval, keep_alive: None }.keep_alive(millis(keep_alive))
    }

    /// The rate as a quota, if that is valid.
    pub(super) fn quota(&self) -> Option<Quota> {
        Quota::try_new(self.permits, self.interval).ok()
    }
}

/// The time in ms, if it is whole milliseconds in range.
pub(super) fn millis(time: Duration) -> Option<u64> {
    let millis = u64::try_from(time.as_millis()).ok()?;
    (time.subsec_nanos().is_multiple_of(1_000_000) && millis <= MAX_MILLIS).then_some(millis)
}
