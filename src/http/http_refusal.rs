//! A refusal as an HTTP caller sees it.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

use crate::{ErrorKind, Refusal};

/// A refusal as an HTTP caller sees it: the argument of the closure in
/// [`HttpResponder::body`](crate::HttpResponder::body).
///
/// Its `Display` text is for the caller. For an error of kind [`Request`](ErrorKind::Request) it is
/// the error's text, such as "the key is empty" or "request has no header x-api-key to limit by".
/// For other errors it does not mention the store or the server.
#[derive(Debug)]
pub struct HttpRefusal {
    refusal: Refusal,
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl HttpRefusal {
    pub(super) fn new(refusal: Refusal, no_key: StatusCode) -> Self {
        let (status, retry_after) = match &refusal {
            Refusal::Denied(decision) => (StatusCode::TOO_MANY_REQUESTS, decision.retry_after()),
            Refusal::Undecided(error) if error.kind() == ErrorKind::Request => {
                (StatusCode::BAD_REQUEST, None)
            }
            Refusal::Undecided(_) => {
                // Random, so that refused callers do not return at the same moment.
                let wait = Duration::from_millis(fastrand::u64(1_000..=3_000));
                (StatusCode::SERVICE_UNAVAILABLE, Some(wait))
            }
            // The fault is in the application, and authentication would not help.
            Refusal::NoKey(error) if error.kind() != ErrorKind::Request => {
                (StatusCode::BAD_REQUEST, None)
            }
            Refusal::NoKey(_) => (no_key, None),
        };
        Self { refusal, status, retry_after }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which the caller may retry. `Retry-After` has it, rounded up to
    /// seconds. `None` if the response has no such header.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the reason why the request does not pass. A denial has the decision, which names the
    /// limiter. An undecided request has the error, so that you can log the cause of a 503.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }
}

impl HttpRefusal {
    pub(super) fn into_refusal(self) -> Refusal {
        self.refusal
    }
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.for_caller().fmt(f)
    }
}
