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
mod tests {
    use super::*;
    use redis_once::calls::from_error_reply;

    #[test]
    fn a_clock_that_scripts_may_not_read_has_a_remedy() {
        let text =
            "ERR This Redis command is not allowed from script script: 6bb, on @user_script:1.";
        let error = Error::from(from_error_reply(text, []));
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().ends_with("set `Pool::caller_clock`)"), "{error}");
        let other = Error::from(from_error_reply("ERR unknown command", []));
        assert!(!other.to_string().contains("caller_clock"), "{other}");
    }
}
