//! One request to the script: a limiter's keys, an operation and its arguments.

use super::grant::GrantId;
use super::keys::Keys;
use super::rate::Rate;
use crate::Error;

/// One call of the script.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) keys: Keys,
    pub(super) operation: &'static str,
    pub(super) arguments: Vec<Vec<u8>>,
}

impl Request {
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

    /// Takes permits whether or not they fit.
    pub(super) fn penalize(keys: &Keys, permits: u32, grant: &GrantId) -> Self {
        Self::new(keys, "penalize", [permits.to_string().as_bytes(), grant])
    }

    /// Gives a limiter a rate if nothing is stored under its name.
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
