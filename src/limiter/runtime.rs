//! The tokio runtime of a caller, which timers and tasks need. Where tokio would panic outside of
//! one, a decision is an error.

use tokio::runtime::Handle;
use tokio::time::{self, Instant, Sleep};

use crate::{Error, ErrorKind};

/// The runtime.
///
/// # Errors
///
/// Of kind [`Configuration`](ErrorKind::Configuration) outside of one.
pub(crate) fn current() -> Result<Handle, Error> {
    let message = "a decision needs a tokio runtime";
    Handle::try_current().map_err(|_| Error::new(ErrorKind::Configuration, message))
}

/// A timer.
///
/// # Errors
///
/// As [`current`].
pub(crate) fn sleep_until(instant: Instant) -> Result<Sleep, Error> {
    current().map(|_| time::sleep_until(instant))
}
