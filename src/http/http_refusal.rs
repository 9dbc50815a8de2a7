//! A refusal as an HTTP caller sees it.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

use crate::{ErrorKind, Refusal};

/// A refusal as an HTTP caller sees it: the argument of the closure of
/// [`HttpResponder::body`](crate::HttpResponder::body).
///
/// Its `Display` text is for the caller. For an error of kind [`Request`](ErrorKind::Request) it is
/// the error's text, such as "the key is empty" or "request has no header x-api-key to limit by".
/// Otherwise it says nothing about the store or the server.
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
                // Spread upwards, so that refused callers do not return at one moment.
                let wait = Duration::from_millis(fastrand::u64(1_000..=3_000));
                (StatusCode::SERVICE_UNAVAILABLE, Some(wait))
            }
            // The application is at fault, and authentication would not help.
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

    /// Returns the time after which to come back. `Retry-After` states it rounded up to seconds.
    /// `None` if the response has no such header.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the reason why the request does not pass. A denial has the decision, which names the
    /// limiter. An undecided one has the error, to log the cause of a 503.
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
