//! Converts the errors of the client to those of limiters.

use crate::core::{Error, ErrorKind};
use redis_once::{Error as ClientError, ErrorKind as ClientErrorKind};

/// The words of ElastiCache Serverless about `TIME`, and of other servers about other commands.
const NOT_IN_SCRIPTS: &str = "redis answered: ERR This Redis command is not allowed from script";

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        let (kind, message, source) = error.into_parts();
        let kind = match kind {
            ClientErrorKind::Infrastructure => ErrorKind::Infrastructure,
            ClientErrorKind::Saturation => ErrorKind::Saturation,
            ClientErrorKind::Capacity => ErrorKind::Capacity,
            ClientErrorKind::Configuration => ErrorKind::Configuration,
            // Also a kind of a later version: no fallback may admit because of it.
            _ => ErrorKind::State,
        };
        let message = match message.starts_with(NOT_IN_SCRIPTS) {
            true => format!("{message} (if it is TIME, set `Pool::caller_clock`)").into(),
            false => message,
        };
        Self::of_parts(kind, message, source)
    }
}

#[cfg(test)]
mod tests;
