//! The tokio runtime of a caller, which timers and tasks need. Without a runtime, tokio would
//! panic, but a decision returns an error.

use tokio::runtime::Handle;
use tokio::time::{self, Instant, Sleep};

use crate::core::{Error, ErrorKind};

/// Returns the current runtime.
///
/// # Errors
///
/// An error of kind [`Configuration`](ErrorKind::Configuration) outside of a runtime.
pub(crate) fn current() -> Result<Handle, Error> {
    let message = "a decision needs a tokio runtime";
    Handle::try_current().map_err(|_| Error::new(ErrorKind::Configuration, message))
}

pub(crate) fn sleep_until(instant: Instant) -> Result<Sleep, Error> {
    current().map(|_| time::sleep_until(instant))
}
