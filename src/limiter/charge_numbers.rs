//! A charge as numbers: the range of its key and cost, its times in microseconds, and its deadline.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::on_time::MAX_TIMEOUT;
use crate::algorithm::LATEST;
use crate::core::quota::INEXACT;
use crate::core::{Charge, Error, ErrorKind};

const MAX_KEY_LENGTH: usize = 64 * 1024;

const MAX_COST: u64 = INEXACT;

/// A clock of the caller: the time since the Unix epoch.
pub(crate) type CallerClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Checks the key and the cost of a charge, for every algorithm.
#[inline]
pub(crate) fn check_range(charge: &Charge) -> Result<(), Error> {
    one_key(charge)?;
    check_cost(charge)
}

/// Returns the instant by which a charge needs its decision. `own` is the limiter's own timeout.
pub(crate) fn deadline(charge: &Charge, own: Duration) -> Instant {
    let own = Instant::now() + own.min(MAX_TIMEOUT);
    charge.deadline().map_or(own, |deadline| own.min(Instant::from_std(deadline)))
}

#[inline]
pub(crate) fn check_cost(charge: &Charge) -> Result<(), Error> {
    match charge.units() {
        0..=MAX_COST => Ok(()),
        _ => Err(Error::new(ErrorKind::Request, "the cost exceeds 2^53 units")),
    }
}

/// Returns the only key of a charge, if it is valid.
#[inline]
pub(crate) fn one_key(charge: &Charge) -> Result<&str, Error> {
    let key = charge.key();
    match check_key(key) {
        Ok(()) => Ok(key),
        Err(_) if charge.has_parts() => Err(Error::new(
            ErrorKind::Configuration,
            "the charge has several keys, but the limiter takes only one",
        )),
        Err(error) => Err(error),
    }
}

#[inline]
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    let refuse = |message| Err(Error::new(ErrorKind::Request, message));
    match key.len() {
        0 => refuse("the key is empty"),
        1..=MAX_KEY_LENGTH => Ok(()),
        _ => refuse("the key is longer than 64 KiB"),
    }
}

pub(crate) fn system_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Converts the time of a clock to µs since the Unix epoch.
#[inline]
pub(crate) fn instant(clock: Duration) -> Result<i64, Error> {
    checked_instant(micros(clock))
}

/// Returns the instant, if the arithmetic is exact for it.
#[inline]
pub(crate) fn checked_instant(micros: i64) -> Result<i64, Error> {
    match micros {
        now @ 0..=LATEST => Ok(now),
        _ => Err(Error::new(ErrorKind::Configuration, "the clock is past the year 2112")),
    }
}

/// Limits units to the range of scripts: at most 2^53.
#[inline]
pub(crate) fn units(units: u64) -> i64 {
    units.min(MAX_COST).cast_signed()
}

/// Returns the time of a block in µs: at least 1, and within the exact range.
pub(crate) fn block_time(time: Duration) -> i64 {
    micros(time).clamp(1, LATEST)
}

#[inline]
pub(crate) fn micros(duration: Duration) -> i64 {
    let micros = duration.as_secs().checked_mul(1_000_000);
    let micros = micros.and_then(|micros| micros.checked_add(duration.subsec_micros().into()));
    micros.and_then(|micros| i64::try_from(micros).ok()).unwrap_or(i64::MAX)
}

#[inline]
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).cast_unsigned())
}

#[cfg(test)]
mod tests;
