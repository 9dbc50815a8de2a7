//! Clocks of the caller, which return the time since the Unix epoch.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tower_sluice::{Error, ErrorKind};

/// A clock of the caller.
pub(super) type EpochClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The latest instant in µs, so that sums of instants stay exact.
pub(super) const LATEST: i64 = 1 << 52;

/// Returns the time of this machine.
pub(super) fn system_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Converts the time of a clock to µs.
pub(super) fn instant(time: Duration) -> Result<i64, Error> {
    let micros = i64::try_from(time.as_micros()).ok().filter(|micros| *micros <= LATEST);
    micros.ok_or_else(|| Error::new(ErrorKind::Configuration, "the clock is past the year 2112"))
}
