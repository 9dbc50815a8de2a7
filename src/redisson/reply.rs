//! The script's reply: an outcome, the instant of the decision, and numbers.

use redis::Value;

use crate::algorithm::LATEST;
use crate::limiter::redis::malformed_reply;
use crate::{Error, ErrorKind};

/// The outcomes that the script returns.
pub(super) const DONE: i64 = 0;
pub(super) const REFUSED: i64 = 1;
pub(super) const EXCEEDS: i64 = 2;
pub(super) const NO_CONFIGURATION: i64 = 3;
pub(super) const BAD_CONFIGURATION: i64 = 4;

/// A reply of the script.
#[derive(Debug)]
pub(super) struct ScriptReply {
    pub(super) outcome: i64,
    /// The instant of the decision, in µs since the Unix epoch.
    pub(super) now: i64,
    numbers: Vec<i64>,
}

impl ScriptReply {
    pub(super) fn read(reply: Value) -> Result<Self, Error> {
        let numbers: Vec<i64> = redis::from_redis_value(reply).map_err(|_| malformed_reply())?;
        match numbers[..] {
            [outcome, now @ 0..=LATEST, ref numbers @ ..] => {
                Ok(Self { outcome, now, numbers: numbers.to_vec() })
            }
            _ => Err(malformed_reply()),
        }
    }

    /// The numbers that follow the outcome and the instant.
    ///
    /// # Errors
    ///
    /// If the reply does not have `N` of them.
    pub(super) fn numbers<const N: usize>(&self) -> Result<[i64; N], Error> {
        self.numbers.as_slice().try_into().map_err(|_| malformed_reply())
    }

    /// The reply of a limiter that has a valid configuration.
    ///
    /// # Errors
    ///
    /// If the limiter has no configuration, or an invalid one.
    pub(super) fn configured(self) -> Result<Self, Error> {
        match self.outcome {
            NO_CONFIGURATION => {
                Err(Error::new(ErrorKind::Configuration, "RateLimiter is not initialized"))
            }
            BAD_CONFIGURATION => {
                let message =
                    "the stored configuration is invalid: rate and interval are at least 1";
                Err(Error::new(ErrorKind::Configuration, message))
            }
            _ => Ok(self),
        }
    }
}
