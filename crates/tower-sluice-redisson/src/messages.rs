//! The messages of the script: a request to it, and its reply, which is an outcome, the instant of
//! the decision, and numbers.

use redis_once::redis::{self, Value};
use tower_sluice::{Error, ErrorKind};

use super::clock::LATEST;
use super::grant::GrantId;
use super::keys::Keys;
use super::rate::Rate;

/// One call of the script.
#[derive(Clone, Debug)]
pub(super) struct PermitCall {
    pub(super) keys: Keys,
    pub(super) operation: &'static str,
    pub(super) arguments: Vec<Vec<u8>>,
}

impl PermitCall {
    pub(super) fn new<T: AsRef<[u8]>>(
        keys: &Keys,
        operation: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_vec()).collect();
        Self { keys: keys.clone(), operation, arguments }
    }

    /// Takes permits.
    pub(super) fn acquire(keys: &Keys, permits: u32, grant: &GrantId) -> Self {
        Self::new(keys, "acquire", [permits.to_string().as_bytes(), grant])
    }

    /// Takes permits even if they do not fit.
    pub(super) fn penalize(keys: &Keys, permits: u32, grant: &GrantId) -> Self {
        Self::new(keys, "penalize", [permits.to_string().as_bytes(), grant])
    }

    /// Sets the rate of a limiter if nothing is stored under its name.
    pub(super) fn set_if_absent(keys: &Keys, rate: Rate) -> Result<Self, Error> {
        let only_if_absent = String::from("1");
        Ok(Self::new(keys, "try_set", [only_if_absent].into_iter().chain(rate.arguments()?)))
    }

    /// Refunds permits of a grant that holds `held`.
    pub(super) fn refund(keys: &Keys, permits: u32, grant: &GrantId, held: u32) -> Self {
        let (permits, held) = (permits.to_string(), held.to_string());
        Self::new(keys, "refund", [permits.as_bytes(), grant, held.as_bytes()])
    }
}

pub(super) fn malformed_reply() -> Error {
    Error::new(ErrorKind::State, "the reply is not one that the script gives")
}

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

    /// Returns the numbers after the outcome and the instant.
    ///
    /// # Errors
    ///
    /// If the reply does not have `N` numbers.
    pub(super) fn numbers<const N: usize>(&self) -> Result<[i64; N], Error> {
        self.numbers.as_slice().try_into().map_err(|_| malformed_reply())
    }

    /// Returns the reply, if the limiter has a valid configuration.
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
                    "the stored configuration is invalid: rate and interval must be at least 1";
                Err(Error::new(ErrorKind::Configuration, message))
            }
            _ => Ok(self),
        }
    }
}
