//! What a refused HTTP caller sees.

use std::fmt;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};

use super::body::{DefaultBody, MakeBody, MakeEmpty};
use super::refusal::HttpRefusal;
use crate::{Refusal, Respond, grpc};

/// Answers refusals with a status, the time to come back, and no body.
///
/// | refusal | status | headers |
/// |---|---|---|
/// | denied | 429 | `Retry-After`, unless the charge can never fit |
/// | undecided | 503 | `Retry-After` of 1 to 3 s, `Cache-Control: no-store` |
/// | undecided, since the key or the cost is invalid | 400 | |
/// | no key | 400, or as [set](HttpResponder::no_key) | |
///
/// A store that is away never shows as 429: the caller did nothing wrong. The inner service's error
/// type stays.
///
/// A gRPC request, known by its content type, gets a trailers-only status instead. It never waits
/// longer than its `grpc-timeout`.
///
/// | HTTP status | gRPC status |
/// |---|---|
/// | 429 | `RESOURCE_EXHAUSTED` (8), with `RetryInfo` and pushback |
/// | 503 | `UNAVAILABLE` (14), with pushback only |
/// | 400, and any other of `no_key` | `INVALID_ARGUMENT` (3) |
/// | 401 | `UNAUTHENTICATED` (16) |
/// | 403 | `PERMISSION_DENIED` (7) |
///
/// Pushback is the header `grpc-retry-pushback-ms`: the milliseconds until the caller may try
/// again. Where the charge can never fit, it is -1 and there is no `RetryInfo`.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_sluice::{HttpResponder, Refusal};
///
/// let respond = HttpResponder::new().no_key(StatusCode::UNAUTHORIZED);
/// let response: Response<String> = respond.reject(Request::new(()), Refusal::NoKey);
/// assert_eq!(response.status(), 401);
/// ```
///
/// With a body, here in JSON. The closure returns the body type of the service, here a `String`.
/// With axum that is `axum::body::Body`, as in `Body::from(text)`:
///
/// ```
/// use http::{HeaderValue, Request, Response};
/// use tower_sluice::{HttpResponder, Refusal};
///
/// let respond = HttpResponder::new()
///     .content_type(HeaderValue::from_static("application/json"))
///     .body(|refusal| format!(r#"{{"error":"{refusal}"}}"#));
/// let response: Response<String> = respond.reject(Request::new(()), Refusal::NoKey);
/// assert_eq!(response.headers()["content-type"], "application/json");
/// assert_eq!(response.body(), r#"{"error":"request has no key to limit by"}"#);
/// ```
#[derive(Clone)]
pub struct HttpResponder<F = DefaultBody, E = DefaultBody> {
    no_key: StatusCode,
    content_type: Option<HeaderValue>,
    body: F,
    empty: E,
}

impl HttpResponder {
    /// Empty responses, and 400 for a request without a key.
    #[must_use]
    pub const fn new() -> Self {
        let no_key = StatusCode::BAD_REQUEST;
        Self { no_key, content_type: None, body: DefaultBody, empty: DefaultBody }
    }
}

impl<F, E> HttpResponder<F, E> {
    /// Sets the status for a request without a key. Default: 400. A gRPC request gets the status
    /// that [`HttpResponder`] lists beside it.
    #[must_use]
    pub const fn no_key(mut self, status: StatusCode) -> Self {
        self.no_key = status;
        self
    }

    /// Sets the `Content-Type` of refusals. Default: none. A gRPC status has its own.
    #[must_use]
    pub fn content_type(mut self, value: HeaderValue) -> Self {
        self.content_type = Some(value);
        self
    }

    /// Sets the body of refusals: a closure over [`&HttpRefusal`](HttpRefusal), which has the
    /// status, the time to come back and a text. It returns the body type of the service's
    /// responses: with axum `axum::body::Body`, not a `String`. Default: an empty one.
    ///
    /// Statuses and headers stay. A gRPC status has no body, so its empty one is made by `Default`,
    /// or by [`empty_body`](HttpResponder::empty_body).
    #[must_use]
    pub fn body<T, C>(self, body: T) -> HttpResponder<T, E>
    where
        T: Fn(&HttpRefusal) -> C,
    {
        let Self { no_key, content_type, empty, .. } = self;
        HttpResponder { no_key, content_type, body, empty }
    }

    /// Sets how an empty body is made, for bodies without `Default`. Default: `Default::default`.
    ///
    /// ```
    /// use http::{HeaderMap, Request, Response};
    /// use tower_sluice::{HttpResponder, Refusal};
    ///
    /// struct Page(&'static str);
    ///
    /// let respond = HttpResponder::new()
    ///     .body(|_| Page("<h1>Slow down</h1>"))
    ///     .empty_body(|| Page(""));
    /// let response = respond.reject(Request::new(()), Refusal::NoKey);
    /// assert_eq!(response.body().0, "<h1>Slow down</h1>");
    ///
    /// let grpc = Request::builder().header("content-type", "application/grpc").body(()).unwrap();
    /// let response: Response<Page> = respond.reject(grpc, Refusal::NoKey);
    /// assert_eq!(response.headers()["grpc-status"], "3");
    /// assert_eq!(response.body().0, "");
    /// ```
    #[must_use]
    pub fn empty_body<T, C>(self, empty: T) -> HttpResponder<F, T>
    where
        T: Fn() -> C,
    {
        let Self { no_key, content_type, body, .. } = self;
        HttpResponder { no_key, content_type, body, empty }
    }

    /// The response to a refused request: for responders of your own that begin with it.
    #[must_use]
    pub fn reject<B, C>(&self, request: Request<B>, refusal: Refusal) -> Response<C>
    where
        F: MakeBody<C>,
        E: MakeEmpty<C>,
    {
        let refusal = HttpRefusal::new(refusal, self.no_key);
        if let Some(kind) = grpc::content_type(request.headers()) {
            let mut response = Response::new(self.empty.empty());
            let (status, wait) = (refusal.status(), refusal.retry_after());
            grpc::write(response.headers_mut(), kind, refusal.refusal(), status, wait);
            return response;
        }
        let body = self.body.body(&refusal).unwrap_or_else(|| self.empty.empty());
        let mut response = Response::new(body);
        *response.status_mut() = refusal.status();
        if matches!(refusal.refusal(), Refusal::Undecided(_)) && refusal.retry_after().is_some() {
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if let Some(content_type) = &self.content_type {
            response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
        }
        if let Some(wait) = refusal.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, whole_seconds(wait).into());
        }
        response
    }
}

impl Default for HttpResponder {
    fn default() -> Self {
        Self::new()
    }
}

impl<F, E> fmt::Debug for HttpResponder<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponder")
            .field("no_key", &self.no_key)
            .field("content_type", &self.content_type)
            .finish_non_exhaustive()
    }
}

impl<B, C, Err, F, E> Respond<Request<B>, Response<C>, Err> for HttpResponder<F, E>
where
    F: MakeBody<C>,
    E: MakeEmpty<C>,
{
    type Error = Err;

    fn max_wait(&self, request: &Request<B>) -> Option<Duration> {
        grpc::content_type(request.headers()).and_then(|_| grpc::timeout(request.headers()))
    }

    fn reject(&self, request: Request<B>, refusal: Refusal) -> Result<Response<C>, Err> {
        Ok(self.reject(request, refusal))
    }
}

/// A wait as `Retry-After` states it: rounded up, and never 0.
fn whole_seconds(wait: Duration) -> u64 {
    let whole = wait.as_secs();
    whole.saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case 114.
    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        let table = [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (12_300, 13)];
        for (millis, seconds) in table {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
