//! A refusal as an HTTP caller sees it.

use std::fmt;
use std::time::Duration;

use http::{Request, StatusCode};

use super::head::Head;
use super::standing::until_retry;
use crate::core::{ErrorKind, Refusal};

/// A refusal as an HTTP caller sees it: the argument of the closure in
/// [`HttpResponder::body`](crate::HttpResponder::body).
///
/// Its `Display` text is for the caller. For an error of kind [`Request`](ErrorKind::Request) it is
/// the error's text, such as "the key is empty" or "request has no header x-api-key to limit by".
/// For other errors it does not mention the store or the server.
pub struct HttpRefusal {
    pub(super) refusal: Refusal,
    status: StatusCode,
    retry_after: Option<Duration>,
    request: Request<()>,
}

impl HttpRefusal {
    pub(super) fn new(refusal: Refusal, no_key: StatusCode, request: Request<()>) -> Self {
        let (status, retry_after) = match &refusal {
            Refusal::Denied(decision) => (StatusCode::TOO_MANY_REQUESTS, until_retry(decision)),
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
        Self { refusal, status, retry_after, request }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which the caller may retry. `Retry-After` has it, rounded up to
    /// seconds. `None` if the response has no such header: the charge can never fit, or its key is
    /// blocked without an end.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The head of the refused request, for an answer that depends on it. In a handler it is the
    /// head of the request that the handler passed.
    #[must_use]
    pub fn head(&self) -> Head<'_> {
        Head::from(&self.request)
    }

    /// Returns the reason why the request does not pass. A denial has the decision, which names the
    /// limiter. An undecided request has the error, so that you can log the cause of a 503.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.for_caller().fmt(f)
    }
}

// Its `Debug` output shows no URI and no header, because these contain keys.
debug_by_name!([] HttpRefusal: refusal, status, retry_after);
