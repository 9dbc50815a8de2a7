//! What a refused HTTP caller sees: a status, when to come back, and no body.
//!
//! | refusal | status | |
//! |---|---|---|
//! | denied | 429 | `Retry-After`, unless the charge can never fit |
//! | undecided | 503 | `Retry-After` of 1 to 3 s, `Cache-Control: no-store` |
//! | undecided, since the key or the cost cannot be | 400 | |
//! | no key | 400, or as set | |
//!
//! A gRPC request, known by its content type, gets a trailers-only status instead: 8 with the
//! delay, 14, or 3; and it never waits longer than its `grpc-timeout`.
//!
//! A store that is away is never told as 429: the caller did nothing wrong.

use std::time::Duration;

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};

use crate::{ErrorKind, RefundIf, Refusal, Respond, Settle, grpc};

/// Answers refusals with an empty response. The inner service's error type stays.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_sluice::{HttpResponder, Refusal, Respond};
///
/// let respond = HttpResponder::new().no_key(StatusCode::UNAUTHORIZED);
/// let response: Result<Response<String>, ()> = respond.reject(Request::new(()), Refusal::NoKey);
/// assert_eq!(response.unwrap().status(), 401);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HttpResponder {
    no_key: StatusCode,
}

impl HttpResponder {
    /// The statuses of the table above.
    #[must_use]
    pub const fn new() -> Self {
        Self { no_key: StatusCode::BAD_REQUEST }
    }

    /// Sets the status for a request without a key. Default: 400.
    #[must_use]
    pub const fn no_key(self, status: StatusCode) -> Self {
        Self { no_key: status }
    }

    /// Sets what a request cost in the end, once it is answered: `cost` is a closure over
    /// `&Decision` and `&Response<_>` that returns units, or `None` to keep what was charged.
    ///
    /// Less is refunded, more is taken. Before a limiter that cannot take more every request is
    /// refused: see [`Settle::new`].
    #[must_use]
    pub const fn settle<F>(self, cost: F) -> Settle<Self, F> {
        Settle::new(self, cost)
    }

    /// Refunds a request if `condition` holds, a closure over `&Decision` and `&Response<_>`.
    #[must_use]
    pub const fn refund_if<F>(self, condition: F) -> Settle<Self, RefundIf<F>> {
        Settle::refund_if(self, condition)
    }
}

impl Default for HttpResponder {
    fn default() -> Self {
        Self::new()
    }
}

impl<B, C, E> Respond<Request<B>, Response<C>, E> for HttpResponder
where
    C: Default,
{
    type Error = E;

    fn max_wait(&self, request: &Request<B>) -> Option<Duration> {
        grpc::content_type(request.headers()).and_then(|_| grpc::timeout(request.headers()))
    }

    fn reject(&self, request: Request<B>, refusal: Refusal) -> Result<Response<C>, E> {
        let mut response = Response::new(C::default());
        // Spread upwards, so that those who were turned away do not return as one.
        let undecided = Duration::from_millis(fastrand::u64(1_000..=3_000));
        if let Some(kind) = grpc::content_type(request.headers()) {
            grpc::write(response.headers_mut(), kind, &refusal, undecided);
            return Ok(response);
        }
        let (status, wait) = match &refusal {
            Refusal::Denied(decision) => (StatusCode::TOO_MANY_REQUESTS, decision.retry_after()),
            Refusal::Undecided(error) if error.kind() == ErrorKind::Request => {
                (StatusCode::BAD_REQUEST, None)
            }
            Refusal::Undecided(_) => {
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                (StatusCode::SERVICE_UNAVAILABLE, Some(undecided))
            }
            Refusal::NoKey => (self.no_key, None),
        };
        *response.status_mut() = status;
        if let Some(wait) = wait {
            response.headers_mut().insert(RETRY_AFTER, whole_seconds(wait).into());
        }
        Ok(response)
    }
}

/// A wait as `Retry-After` tells it: rounded up, and never 0.
fn whole_seconds(wait: Duration) -> u64 {
    let whole = wait.as_secs();
    whole.saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        let table = [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (12_300, 13)];
        for (millis, seconds) in table {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
