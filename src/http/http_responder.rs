//! The response to a refused HTTP caller.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::body::{ConnectBody, DefaultBody, MakeBody, MakeEmpty, PlainText};
use super::cost_in_response::CostInResponse;
use super::header_fields::number;
use super::headers::{HeaderStyle, RateLimitHeaders};
use super::http_refusal::HttpRefusal;
use super::problem::ProblemJson;
use super::rpc_status::{RESOURCE_EXHAUSTED, RpcStatus};
use super::standing::whole_seconds;
use super::{connect, grpc};
use crate::core::decision::DecisionReport;
use crate::core::reservation::Reservation;
use crate::core::{Decision, Refusal};
use crate::tower::reject::Respond;

/// Answers refusals with a status, the time to come back, and by default no body.
///
/// | refusal | status | headers |
/// |---|---|---|
/// | denied | 429 | `Retry-After`, unless it can never fit; `RateLimit-Policy` and `RateLimit` |
/// | undecided | 503 | `Retry-After` of 1 to 3 s, `Cache-Control: no-store` |
/// | undecided, since the key or the cost is invalid, or [`Keyed::Invalid`](crate::key::Keyed::Invalid) | 400 | |
/// | no key | 400, or as set by [`no_key`] | `WWW-Authenticate`, if set by [`www_authenticate`] |
/// | no key, since the peer address is missing | 400 | |
///
/// [`no_key`]: HttpResponder::no_key
/// [`www_authenticate`]: HttpResponder::www_authenticate
///
/// A gRPC request gets a trailers-only status instead. It never waits longer than its
/// `grpc-timeout`.
///
/// | HTTP status | gRPC status |
/// |---|---|
/// | 429 | `RESOURCE_EXHAUSTED` (8), or as set by [`grpc_code`](HttpResponder::grpc_code) |
/// | 503 | `UNAVAILABLE` (14), with pushback and no details |
/// | 400, and any other status of `no_key` | `INVALID_ARGUMENT` (3) |
/// | 401 | `UNAUTHENTICATED` (16) |
/// | 403 | `PERMISSION_DENIED` (7) |
///
/// Pushback is the header `grpc-retry-pushback-ms`: the milliseconds until the caller may try
/// again, or -1 if the charge can never fit.
///
/// A request of Connect gets an error in JSON with the same codes. It needs a body: a `String`, the
/// body of axum or of tonic with the feature of that name, or one that
/// [`connect_body`](HttpResponder::connect_body) makes. With another body, the answer is the one
/// for HTTP. The page [gRPC] has the details of both.
///
/// [`headers`](HttpResponder::headers) sets the fields that show a caller its limits. [What callers
/// see][callers] has more examples.
///
/// ```
/// use http::{HeaderValue, Request, Response};
/// use tower_sluice::{Error, ErrorKind, HttpResponder, Refusal};
///
/// let respond = HttpResponder::new()
///     .content_type(HeaderValue::from_static("application/json"))
///     .body(|refusal| format!(r#"{{"error":"{refusal}"}}"#));
/// let no_key = Refusal::NoKey(Error::new(ErrorKind::Request, "no header x-user"));
/// let response: Response<String> = respond.refuse_in_handler(Request::new(()), no_key);
/// assert_eq!(response.body(), r#"{"error":"no header x-user"}"#);
/// ```
///
/// [callers]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/what_callers_see/
/// [gRPC]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/grpc/
#[derive(Clone)]
#[must_use]
pub struct HttpResponder<F = DefaultBody, E = DefaultBody> {
    settings: ResponderSettings,
    body: F,
    empty: E,
}

#[derive(Clone, Debug)]
struct ResponderSettings {
    no_key: StatusCode,
    challenge: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
    edit_headers: Option<EditHeaders>,
    rpc_code: u8,
    headers: RateLimitHeaders,
    report_in_request: bool,
    report_in_response: bool,
}

#[derive(Clone)]
struct EditHeaders(Arc<Edit>);

type Edit = dyn Fn(&HttpRefusal, &mut HeaderMap) + Send + Sync;

debug_by_name!([] EditHeaders);

impl HttpResponder {
    /// A responder with empty bodies, 400 for a request without a key, and on refusals the fields
    /// of draft-11.
    pub const fn new() -> Self {
        let settings = ResponderSettings {
            no_key: StatusCode::BAD_REQUEST,
            challenge: None,
            content_type: None,
            edit_headers: None,
            rpc_code: RESOURCE_EXHAUSTED,
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
    /// It applies to errors of kind [`Request`](crate::ErrorKind::Request). For another kind, such
    /// as a missing peer address, the status is 400.
    pub const fn no_key(mut self, status: StatusCode) -> Self {
        self.settings.no_key = status;
        self
    }

    /// Sets the field `WWW-Authenticate` of a 401 for a request without a key: the authentication
    /// scheme, which RFC 9110 requires. Default: none.
    pub fn www_authenticate(mut self, challenge: HeaderValue) -> Self {
        self.settings.challenge = Some(challenge);
        self
    }

    /// Sets the `Content-Type` of refusals. Default: none. A gRPC status has its own.
    pub fn content_type(mut self, value: HeaderValue) -> Self {
        self.settings.content_type = Some(value);
        self
    }

    /// Changes the headers of refusals: a closure over [`&HttpRefusal`](HttpRefusal) and the
    /// headers, which all other setters have written before. Default: none. A gRPC status is not
    /// changed.
    ///
    /// Together with [`body`](HttpResponder::body) the answer can depend on the request: see [HTML
    /// for browsers, JSON for programs][callers].
    ///
    /// [callers]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/what_callers_see/
    pub fn edit_headers<T>(mut self, edit: T) -> Self
    where
        T: Fn(&HttpRefusal, &mut HeaderMap) + Send + Sync + 'static,
    {
        self.settings.edit_headers = Some(EditHeaders(Arc::new(edit)));
        self
    }

    /// Sets the code of a denial in gRPC and Connect, 1 to 16. Default: 8, `RESOURCE_EXHAUSTED`.
    /// Clients that try again after 14, `UNAVAILABLE`, may need that one.
    ///
    /// # Panics
    ///
    /// If it is no code of an error: 0, or above 16.
    pub const fn grpc_code(mut self, code: u8) -> Self {
        assert!(code >= 1 && code <= 16, "a gRPC code of an error is 1 to 16");
        self.settings.rpc_code = code;
        self
    }

    /// Sets the fields that show a caller its limits: a [`HeaderStyle`], or [`RateLimitHeaders`],
    /// which also set the responses that have them. Default: the fields of draft-11, on refusals.
    pub fn headers(mut self, headers: impl Into<RateLimitHeaders>) -> Self {
        self.settings.headers = headers.into();
        self
    }

    /// Adds the decision to the extensions of each request that passes, as a [`DecisionReport`],
    /// for its handler. Default: off, since it costs two allocations.
    pub const fn report_in_request(mut self) -> Self {
        self.settings.report_in_request = true;
        self
    }

    /// Adds the decision to the extensions of each response of a decided request, as a
    /// [`DecisionReport`], for outer layers. Default: off.
    pub const fn report_in_response(mut self) -> Self {
        self.settings.report_in_response = true;
        self
    }

    /// Sets the body of refusals to a short text, and their content type to
    /// `text/plain; charset=utf-8`. The body type must be `From<String>`. Default: an empty body.
    ///
    /// It is the text of the [`HttpRefusal`], without details of the store.
    pub fn text(self) -> HttpResponder<PlainText, E> {
        self.content_type(HeaderValue::from_static("text/plain; charset=utf-8"))
            .with_body(PlainText)
    }

    /// Sets the body of refusals to a [problem document](HttpRefusal::problem_json), and their
    /// content type to `application/problem+json`. The body type must be `From<String>`. Default:
    /// an empty body.
    pub fn problem_json(self) -> HttpResponder<ProblemJson, E> {
        self.content_type(HeaderValue::from_static("application/problem+json"))
            .with_body(ProblemJson)
    }

    /// Sets the body of refusals: a closure over [`&HttpRefusal`](HttpRefusal), which has the
    /// status, the time to come back, a text, and the head of the request. It returns the body type
    /// of the service's responses: with axum `axum::body::Body`, not a `String`. Default: an empty
    /// body.
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
    pub fn empty_body<T, C>(self, empty: T) -> HttpResponder<F, T>
    where
        T: Fn() -> C,
    {
        HttpResponder { settings: self.settings, body: self.body, empty }
    }

    /// Sets how the body of a Connect error is made from its text. Default: by `From<String>` after
    /// [`text`](HttpResponder::text) and [`problem_json`](HttpResponder::problem_json), else for
    /// the bodies that [`HttpResponder`] lists.
    pub fn connect_body<T, C>(self, make: T) -> HttpResponder<ConnectBody<F, T>, E>
    where
        T: Fn(String) -> C,
    {
        let Self { settings, body, empty } = self;
        HttpResponder { settings, body: ConnectBody { inner: body, make }, empty }
    }

    /// Returns the response to a refused request, for handlers that call a limiter themselves.
    ///
    /// Of the request, only the head is used, since `HEAD` and gRPC get other responses.
    ///
    /// [Login protection][login] has an example.
    ///
    /// [login]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/login_protection/
    #[doc(alias = "into_response")]
    #[must_use]
    pub fn refuse_in_handler<B, C>(&self, request: Request<B>, refusal: Refusal) -> Response<C>
    where
        F: MakeBody<C>,
        E: MakeEmpty<C>,
    {
        let (grpc, connect) = (grpc::content_type(&request), connect::ConnectCall::of(&request));
        let request = request.map(drop);
        let has_body = request.method() != Method::HEAD;
        let refusal = HttpRefusal::new(refusal, self.settings.no_key, request);
        let response = match (grpc, connect) {
            (Some(kind), _) => Some(self.trailers_only(kind, &refusal)),
            (None, Some(call)) => self.connect_error(call, &refusal),
            (None, None) => None,
        };
        let mut response = response.unwrap_or_else(|| self.refused(has_body, &refusal));
        if self.settings.report_in_response
            && let Refusal::Denied(decision) = refusal.refusal
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
        response.headers_mut().insert(CONTENT_TYPE, kind);
        grpc::write(response.headers_mut(), refusal, self.settings.rpc_code);
        response
    }

    /// Returns an error of Connect. `None` if the body cannot be made: clients then read the HTTP
    /// status.
    fn connect_error<C>(
        &self,
        call: connect::ConnectCall,
        refusal: &HttpRefusal,
    ) -> Option<Response<C>>
    where
        F: MakeBody<C>,
        E: MakeEmpty<C>,
    {
        let status = RpcStatus::new(refusal, self.settings.rpc_code);
        let error = connect::error(&status, &refusal.to_string());
        let (mut response, kind) = match call {
            connect::ConnectCall::Unary => {
                let body = self.body.connect_error(error)?;
                let mut response = self.refused(false, refusal).map(|_| body);
                *response.status_mut() = connect::http_status(&status);
                (response, HeaderValue::from_static("application/json"))
            }
            connect::ConnectCall::Stream(kind) => {
                let body = self.body.connect_error(connect::end_of_stream(&error))?;
                (Response::new(body), kind)
            }
        };
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Some(response)
    }

    fn refused<C>(&self, has_body: bool, refusal: &HttpRefusal) -> Response<C>
    where
        F: MakeBody<C>,
        E: MakeEmpty<C>,
    {
        let body = if has_body { self.body.body(refusal) } else { None };
        let mut response = Response::new(body.unwrap_or_else(|| self.empty.empty()));
        *response.status_mut() = refusal.status();
        let headers = response.headers_mut();
        if let Some(wait) = refusal.retry_after() {
            headers.extend(number(whole_seconds(wait)).map(|seconds| (RETRY_AFTER, seconds)));
        }
        match refusal.refusal() {
            Refusal::Denied(decision) => self.settings.headers.write(decision, &mut response),
            Refusal::Undecided(_) if refusal.retry_after().is_some() => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            Refusal::NoKey(_) if refusal.status() == StatusCode::UNAUTHORIZED => {
                let challenge = self.settings.challenge.clone();
                headers.extend(challenge.map(|challenge| (WWW_AUTHENTICATE, challenge)));
            }
            _ => {}
        }
        let headers = response.headers_mut();
        if let Some(content_type) = &self.settings.content_type {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        if let Some(edit) = &self.settings.edit_headers {
            (edit.0)(refusal, headers);
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
        match grpc::content_type(request) {
            Some(_) => grpc::timeout(request.headers()),
            None => connect::timeout(request),
        }
    }

    fn reject(&self, request: Request<B>, refusal: Refusal) -> Result<Response<C>, Err> {
        Ok(self.refuse_in_handler(request, refusal))
    }

    fn admit(&self, decision: &mut Decision, request: &mut Request<B>) {
        if self.settings.report_in_request {
            request.extensions_mut().insert(DecisionReport::from(&*decision));
        }
    }

    fn annotate(&self, decision: &mut Decision, response: &mut Response<C>) {
        let payload = decision.reservation().and_then(Reservation::payload::<CostInResponse>);
        if let Some(stated) = payload {
            stated.reader.read_headers(response.headers());
        }
        let is_redirect = response.status().is_redirection();
        self.settings.headers.write_admitted(decision, is_redirect, response);
        if self.settings.report_in_response {
            response.extensions_mut().insert(DecisionReport::from(&*decision));
        }
    }
}
