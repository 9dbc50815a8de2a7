//! The response to a refused HTTP caller.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use super::body::{DefaultBody, MakeBody, MakeEmpty, PlainText};
use super::header_fields::number;
use super::headers::{HeaderStyle, RateLimitHeaders};
use super::http_refusal::HttpRefusal;
use super::problem::ProblemJson;
use super::standing::whole_seconds;
use crate::decision::DecisionReport;
use crate::responder::Respond;
use crate::{Decision, Refusal, grpc};

/// Answers refusals with a status, the time to come back, and by default no body.
///
/// | refusal | status | headers |
/// |---|---|---|
/// | denied | 429 | `Retry-After`, unless it can never fit; `RateLimit-Policy` and `RateLimit` |
/// | undecided | 503 | `Retry-After` of 1 to 3 s, `Cache-Control: no-store` |
/// | undecided, since the key or the cost is invalid | 400 | |
/// | no key | 400, or as set by [`no_key`] | `WWW-Authenticate`, if set by [`www_authenticate`] |
/// | no key, since the peer address is missing | 400 | |
///
/// [`text`](HttpResponder::text) adds a short text, such as "request has no header x-api-key to
/// limit by". For longer bodies, use [`problem_json`](HttpResponder::problem_json) or
/// [`body`](HttpResponder::body).
///
/// [`no_key`]: HttpResponder::no_key
/// [`www_authenticate`]: HttpResponder::www_authenticate
///
/// If the store is away, the status is not 429: the caller did nothing wrong. The error type of the
/// inner service stays.
///
/// A gRPC request gets a trailers-only status instead. It is a `POST` with the content type of gRPC
/// or of gRPC-Web. It never waits longer than its `grpc-timeout`.
///
/// | HTTP status | gRPC status |
/// |---|---|
/// | 429 | `RESOURCE_EXHAUSTED` (8), with `RetryInfo` and pushback |
/// | 503 | `UNAVAILABLE` (14), with pushback only |
/// | 400, and any other status of `no_key` | `INVALID_ARGUMENT` (3) |
/// | 401 | `UNAUTHENTICATED` (16) |
/// | 403 | `PERMISSION_DENIED` (7) |
///
/// Pushback is the header `grpc-retry-pushback-ms`: the milliseconds until the caller may try
/// again. If the charge can never fit, it is -1 and there is no `RetryInfo`.
///
/// [`headers`](HttpResponder::headers) sets the fields that show a caller its limits, on refusals
/// and if wanted on responses to admitted requests. Handlers that read the decision need
/// [`report_in_request`](HttpResponder::report_in_request). Outer layers that read it need
/// [`report_in_response`](HttpResponder::report_in_response).
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_sluice::{Error, ErrorKind, HttpResponder, Refusal};
///
/// let respond = HttpResponder::new().no_key(StatusCode::UNAUTHORIZED);
/// let no_key = Refusal::NoKey(Error::new(ErrorKind::Request, "no header x-user"));
/// let response: Response<String> = respond.reject(Request::new(()), no_key);
/// assert_eq!(response.status(), 401);
/// ```
///
/// An example with a JSON body: the closure returns the body type of the service, here a `String`.
/// With axum it is `axum::body::Body`, as in `Body::from(text)`:
///
/// ```
/// use http::{HeaderValue, Request, Response};
/// use tower_sluice::{Error, ErrorKind, HttpResponder, Refusal};
///
/// let respond = HttpResponder::new()
///     .content_type(HeaderValue::from_static("application/json"))
///     .body(|refusal| format!(r#"{{"error":"{refusal}"}}"#));
/// let no_key = Refusal::NoKey(Error::new(ErrorKind::Request, "no header x-user"));
/// let response: Response<String> = respond.reject(Request::new(()), no_key);
/// assert_eq!(response.headers()["content-type"], "application/json");
/// assert_eq!(response.body(), r#"{"error":"no header x-user"}"#);
/// ```
#[derive(Clone)]
#[must_use]
pub struct HttpResponder<F = DefaultBody, E = DefaultBody> {
    settings: Settings,
    body: F,
    empty: E,
}

#[derive(Clone, Debug)]
struct Settings {
    /// The status for a request without a key.
    no_key: StatusCode,
    challenge: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
    headers: RateLimitHeaders,
    /// True if a [`DecisionReport`] is added to requests.
    report_in_request: bool,
    report_in_response: bool,
}

impl HttpResponder {
    /// A responder with empty bodies, 400 for a request without a key, and on refusals the fields
    /// of draft-11.
    pub const fn new() -> Self {
        let settings = Settings {
            no_key: StatusCode::BAD_REQUEST,
            challenge: None,
            content_type: None,
            headers: RateLimitHeaders::new(HeaderStyle::Draft11),
            report_in_request: false,
            report_in_response: false,
        };
        Self { settings, body: DefaultBody, empty: DefaultBody }
    }
}

impl<F, E> HttpResponder<F, E> {
    /// Sets the status for a request without a key. Default: 400. A gRPC request gets the matching
    /// status of the table at [`HttpResponder`].
    ///
    /// It applies to errors of kind [`Request`](crate::ErrorKind::Request): the request lacks
    /// something. For another kind, such as a missing peer address, the status is 400: the fault is
    /// in the application, and authentication would not help.
    pub const fn no_key(mut self, status: StatusCode) -> Self {
        self.settings.no_key = status;
        self
    }

    /// Sets the field `WWW-Authenticate` of a 401 for a request without a key: the authentication
    /// scheme, which RFC 9110 requires. Default: none.
    ///
    /// ```
    /// use http::{HeaderValue, Request, Response, StatusCode};
    /// use tower_sluice::{Error, ErrorKind, HttpResponder, Refusal};
    ///
    /// let respond = HttpResponder::new()
    ///     .no_key(StatusCode::UNAUTHORIZED)
    ///     .www_authenticate(HeaderValue::from_static("Bearer"));
    /// let no_key = Refusal::NoKey(Error::new(ErrorKind::Request, "no bearer token"));
    /// let response: Response<String> = respond.reject(Request::new(()), no_key);
    /// assert_eq!(response.headers()["www-authenticate"], "Bearer");
    /// ```
    pub fn www_authenticate(mut self, challenge: HeaderValue) -> Self {
        self.settings.challenge = Some(challenge);
        self
    }

    /// Sets the `Content-Type` of refusals. Default: none. A gRPC status has its own.
    pub fn content_type(mut self, value: HeaderValue) -> Self {
        self.settings.content_type = Some(value);
        self
    }

    /// Sets the fields that show a caller its limits: a [`HeaderStyle`], or [`RateLimitHeaders`],
    /// which also set the responses that have them. Default: the fields of draft-11, on refusals.
    ///
    /// ```
    /// use http::Request;
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::key::Global;
    /// use tower_sluice::respond::{HeaderStyle, OnAdmitted, RateLimitHeaders};
    /// use tower_sluice::{HttpResponder, Memory, Quota, RateLimitLayer};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let headers = RateLimitHeaders::new(HeaderStyle::Draft11).on_admitted(OnAdmitted::Always);
    /// let limiter = Memory::new("api", TokenBucket::new(Quota::per_minute(100)));
    /// let limit = RateLimitLayer::new(limiter, Global)
    ///     .respond(HttpResponder::new().headers(headers));
    ///
    /// let inner = async |_: Request<()>| Ok::<_, std::io::Error>(http::Response::new(()));
    /// let response = limit.layer(service_fn(inner)).oneshot(Request::new(())).await?;
    /// assert_eq!(response.headers()["ratelimit-policy"], r#""api";q=100;w=60"#);
    /// assert_eq!(response.headers()["ratelimit"], r#""api";r=99;t=1"#);
    /// # Ok::<(), std::io::Error>(()) }).unwrap();
    /// ```
    pub fn headers(mut self, headers: impl Into<RateLimitHeaders>) -> Self {
        self.settings.headers = headers.into();
        self
    }

    /// Adds the decision to the extensions of each request that passes, as a [`DecisionReport`],
    /// for its handler. Default: off, since it costs two allocations.
    ///
    /// ```
    /// use axum::{Extension, Router, routing::get};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::key::Global;
    /// use tower_sluice::respond::DecisionReport;
    /// use tower_sluice::{HttpResponder, Memory, Quota, RateLimitLayer};
    ///
    /// async fn left(Extension(decision): Extension<DecisionReport>) -> String {
    ///     format!("{:?} left", decision.remaining())
    /// }
    ///
    /// let limiter = Memory::new("api", TokenBucket::new(Quota::per_minute(100)));
    /// let respond = HttpResponder::new().report_in_request();
    /// let limit = RateLimitLayer::new(limiter, Global).respond(respond);
    /// let app: Router = Router::new().route("/", get(left)).layer(limit);
    /// ```
    pub const fn report_in_request(mut self) -> Self {
        self.settings.report_in_request = true;
        self
    }

    /// Adds the decision to the extensions of each response of a decided request, as a
    /// [`DecisionReport`], for outer layers. Default: off.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower_sluice::respond::DecisionReport;
    /// use tower_sluice::{Decision, HttpResponder, Outcome, Refusal};
    ///
    /// let denied = || Refusal::Denied(Decision::new(Outcome::Deny { retry_after: None }));
    /// let has_report = |respond: HttpResponder| {
    ///     let response: Response<String> = respond.reject(Request::new(()), denied());
    ///     response.extensions().get::<DecisionReport>().is_some()
    /// };
    /// assert!(!has_report(HttpResponder::new()));
    /// assert!(has_report(HttpResponder::new().report_in_response()));
    /// ```
    pub const fn report_in_response(mut self) -> Self {
        self.settings.report_in_response = true;
        self
    }

    /// Sets the body of refusals to a short text, and their content type to
    /// `text/plain; charset=utf-8`. The body type must be `From<String>`. Default: an empty body.
    ///
    /// It is the text of the [`HttpRefusal`]: the fault of the request, without details of the
    /// store.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{HttpResponder, Memory, Quota, RateLimitLayer, by_api_key};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let limiter = Memory::new("api", TokenBucket::new(Quota::per_minute(100)));
    /// let limit = RateLimitLayer::new(limiter, by_api_key("x-api-key"))
    ///     .respond(HttpResponder::new().text());
    ///
    /// let inner = async |_: Request<()>| Ok::<_, std::io::Error>(Response::new(String::new()));
    /// let response = limit.layer(service_fn(inner)).oneshot(Request::new(())).await?;
    /// assert_eq!(response.status(), 400);
    /// assert_eq!(response.body(), "request has no header x-api-key to limit by");
    /// # Ok::<(), std::io::Error>(()) }).unwrap();
    /// ```
    pub fn text(self) -> HttpResponder<PlainText, E> {
        self.content_type(HeaderValue::from_static("text/plain; charset=utf-8"))
            .with_body(PlainText)
    }

    /// Sets the body of refusals to a [problem document](HttpRefusal::problem_json), and their
    /// content type to `application/problem+json`. The body type must be `From<String>`. Default:
    /// an empty body.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::{Request, Response};
    /// use tower_sluice::{Decision, HttpResponder, Outcome, Quota, Refusal};
    ///
    /// let retry_after = Some(Duration::from_millis(12_300));
    /// let denied = Decision::new(Outcome::Deny { retry_after })
    ///     .with_limiter("api".into(), Quota::per_minute(100))
    ///     .with_report(0, Duration::from_secs(60));
    /// let respond = HttpResponder::new().problem_json();
    /// let response: Response<String> = respond.reject(Request::new(()), Refusal::Denied(denied));
    /// assert!(response.body().contains(r#""violated-policies":["api"]"#));
    /// ```
    pub fn problem_json(self) -> HttpResponder<ProblemJson, E> {
        self.content_type(HeaderValue::from_static("application/problem+json"))
            .with_body(ProblemJson)
    }

    /// Sets the body of refusals: a closure over [`&HttpRefusal`](HttpRefusal), which has the
    /// status, the time to come back and a text. It returns the body type of the service's
    /// responses: with axum `axum::body::Body`, not a `String`. Default: an empty body.
    ///
    /// Statuses and headers stay. A gRPC status and the response to a HEAD request have an empty
    /// body, made by `Default` or by [`empty_body`](HttpResponder::empty_body).
    pub fn body<T, C>(self, body: T) -> HttpResponder<T, E>
    where
        T: Fn(&HttpRefusal) -> C,
    {
        self.with_body(body)
    }

    fn with_body<T>(self, body: T) -> HttpResponder<T, E> {
        HttpResponder { settings: self.settings, body, empty: self.empty }
    }

    /// Sets how an empty body is made, for bodies without `Default`. Default: `Default::default`.
    ///
    /// ```
    /// use http::{HeaderMap, Request, Response};
    /// use tower_sluice::{Error, ErrorKind, HttpResponder, Refusal};
    ///
    /// struct Page(&'static str);
    ///
    /// let respond = HttpResponder::new()
    ///     .body(|_| Page("<h1>Slow down</h1>"))
    ///     .empty_body(|| Page(""));
    /// let no_key = || Refusal::NoKey(Error::new(ErrorKind::Request, "no header x-user"));
    /// let response = respond.reject(Request::new(()), no_key());
    /// assert_eq!(response.body().0, "<h1>Slow down</h1>");
    ///
    /// let call = Request::post("/a.B/C").header("content-type", "application/grpc");
    /// let call = call.body(()).unwrap();
    /// let response: Response<Page> = respond.reject(call, no_key());
    /// assert_eq!(response.headers()["grpc-status"], "3");
    /// assert_eq!(response.body().0, "");
    /// ```
    pub fn empty_body<T, C>(self, empty: T) -> HttpResponder<F, T>
    where
        T: Fn() -> C,
    {
        HttpResponder { settings: self.settings, body: self.body, empty }
    }

    /// Returns the response to a refused request. It is for responders of your own, and for
    /// handlers that call a limiter themselves.
    ///
    /// A handler calls a limiter itself if the key is in the body, such as the user of a login.
    /// [`acquire`](crate::LimiterExt::acquire) with a `max_wait` of 0 decides at once, and its
    /// error is the [`Refusal`]. Of the request, only the method and the headers are used, since
    /// `HEAD` and gRPC get other responses. Here an empty request is enough.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use http::{Request, Response};
    /// use tower_sluice::algorithm::FixedWindow;
    /// use tower_sluice::{Charge, HttpResponder, LimiterExt, Memory, Quota};
    ///
    /// async fn login(logins: &Memory<FixedWindow>, user: &str) -> Response<String> {
    ///     let charge = Charge::new(user).max_wait(Duration::ZERO);
    ///     match logins.acquire(charge).await {
    ///         Ok(_) => Response::new(String::from("the password is checked")),
    ///         Err(refusal) => HttpResponder::new().text().reject(Request::new(()), refusal),
    ///     }
    /// }
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build().unwrap().block_on(async {
    /// let logins = Memory::new("logins", FixedWindow::new(Quota::per_hour(1)).anchored());
    /// assert_eq!(login(&logins, "alice").await.status(), 200);
    /// let refused = login(&logins, "alice").await;
    /// assert_eq!(refused.status(), 429);
    /// assert_eq!(refused.headers()["retry-after"], "3600");
    /// # });
    /// ```
    #[doc(alias = "into_response")]
    #[must_use]
    pub fn reject<B, C>(&self, request: Request<B>, refusal: Refusal) -> Response<C>
    where
        F: MakeBody<C>,
        E: MakeEmpty<C>,
    {
        let refusal = HttpRefusal::new(refusal, self.settings.no_key);
        let mut response = match grpc::content_type(&request) {
            Some(kind) => self.trailers_only(kind, &refusal),
            None => self.refused(request.method() != Method::HEAD, &refusal),
        };
        if self.settings.report_in_response
            && let Refusal::Denied(decision) = refusal.into_refusal()
        {
            response.extensions_mut().insert(DecisionReport::from(decision));
        }
        response
    }

    fn trailers_only<C>(&self, kind: HeaderValue, refusal: &HttpRefusal) -> Response<C>
    where
        E: MakeEmpty<C>,
    {
        let mut response = Response::new(self.empty.empty());
        let (status, wait) = (refusal.status(), refusal.retry_after());
        grpc::write(response.headers_mut(), kind, refusal.refusal(), status, wait);
        response
    }

    fn refused<C>(&self, has_body: bool, refusal: &HttpRefusal) -> Response<C>
    where
        F: MakeBody<C>,
        E: MakeEmpty<C>,
    {
        let body = if has_body { self.body.body(refusal) } else { None };
        let mut response = Response::new(body.unwrap_or_else(|| self.empty.empty()));
        *response.status_mut() = refusal.status();
        if let Refusal::Denied(decision) = refusal.refusal() {
            self.settings.headers.write(decision, &mut response);
        }
        let headers = response.headers_mut();
        if let Some(wait) = refusal.retry_after() {
            headers.extend(number(whole_seconds(wait)).map(|seconds| (RETRY_AFTER, seconds)));
        }
        match refusal.refusal() {
            Refusal::Undecided(_) if refusal.retry_after().is_some() => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            Refusal::NoKey(_) if refusal.status() == StatusCode::UNAUTHORIZED => {
                let challenge = self.settings.challenge.clone();
                headers.extend(challenge.map(|challenge| (WWW_AUTHENTICATE, challenge)));
            }
            _ => {}
        }
        if let Some(content_type) = &self.settings.content_type {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        response
    }
}

impl Default for HttpResponder {
    fn default() -> Self {
        Self::new()
    }
}

debug_by_name!([F, E] HttpResponder<F, E>: settings);

impl<B, C, Err, F, E> Respond<Request<B>, Response<C>, Err> for HttpResponder<F, E>
where
    F: MakeBody<C>,
    E: MakeEmpty<C>,
{
    type Error = Err;

    fn max_wait(&self, request: &Request<B>) -> Option<Duration> {
        grpc::content_type(request).and_then(|_| grpc::timeout(request.headers()))
    }

    fn reject(&self, request: Request<B>, refusal: Refusal) -> Result<Response<C>, Err> {
        Ok(self.reject(request, refusal))
    }

    fn admit(&self, decision: &mut Decision, request: &mut Request<B>) {
        if self.settings.report_in_request {
            request.extensions_mut().insert(DecisionReport::of(decision));
        }
    }

    fn annotate(&self, decision: &mut Decision, response: &mut Response<C>) {
        let is_redirect = response.status().is_redirection();
        self.settings.headers.write_admitted(decision, is_redirect, response);
        if self.settings.report_in_response {
            response.extensions_mut().insert(DecisionReport::of(decision));
        }
    }
}
