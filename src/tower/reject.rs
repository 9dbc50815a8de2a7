//! The rejection of requests that do not pass: responders, and those that return errors.

use std::time::Duration;

use tower::BoxError;

use crate::core::{Decision, Refusal};

/// Makes the answer to a request that does not pass.
///
/// A layer starts with [`HttpResponder`](crate::HttpResponder). For services that do not speak
/// HTTP, [`Raise`] returns the refusal as an error. A closure takes the request and its
/// [`&Refusal`](Refusal), and returns the response:
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_sluice::respond::Respond;
/// use tower_sluice::{Decision, Outcome, Refusal};
///
/// let teapot = |_request: Request<()>, refusal: &Refusal| {
///     let mut response = Response::new(refusal.to_string());
///     *response.status_mut() = StatusCode::IM_A_TEAPOT;
///     response
/// };
/// let denied = Refusal::Denied(Decision::new(Outcome::Deny { retry_after: None }));
/// let response: Result<_, std::io::Error> = teapot.reject(Request::new(()), denied);
/// assert_eq!(response.unwrap().body(), "rate limit exceeded");
/// ```
///
/// To keep the statuses and change the body only, use
/// [`HttpResponder::body`](crate::HttpResponder::body). A closure gives gRPC requests no gRPC
/// status unless it makes one, and cannot call an `HttpResponder`, which takes the refusal by
/// value. If your own responder wraps `HttpResponder`, forward every method.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a refused request of this service",
    label = "makes no `{Res}` for a refused `{Req}`",
    note = "a service that does not speak HTTP needs `.respond(Raise)`: refusals become its errors",
    note = "or `.respond(|request: Request<Body>, refusal: &Refusal| ..)`: the closure returns a response; with axum, end it with `.into_response()`",
    note = "a body without `Default` needs `.respond(HttpResponder::new().empty_body(|| ..))`",
    note = "the closure of `HttpResponder::body` returns the service's body type; with axum `axum::body::Body`",
    note = "`text` and `problem_json` need a body that is `From<String>`; tonic's is not, and its status has the text"
)]
pub trait Respond<Req, Res, E> {
    /// The error of the limited service: that of the inner service, unless refusals are errors too.
    type Error: From<E>;

    /// Answers `request`, which does not reach the inner service.
    ///
    /// # Errors
    ///
    /// The refusal, if this responder makes errors of refusals.
    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, Self::Error>;

    /// The longest wait that the caller of `request` accepts, if it states one. Default: `None`.
    fn max_wait(&self, request: &Req) -> Option<Duration> {
        let _ = request;
        None
    }

    /// Adds information about the decision to an admitted request, for the inner service. It is
    /// called once, just before the inner service. Default: nothing.
    /// [`HttpResponder`](crate::HttpResponder) adds a
    /// [`DecisionReport`](crate::respond::DecisionReport) if that is configured.
    fn admit(&self, decision: &mut Decision, request: &mut Req) {
        let _ = (decision, request);
    }

    /// Adds information for the caller to the response of an admitted request, such as how long it
    /// [`waited`](Decision::waited). Default: nothing. The guide's page [what callers
    /// see][page] has an example.
    ///
    /// It is called before the layer [settles](crate::Settle). A responder that takes the
    /// decision's [`reservation`](Decision::take_reservation) settles it itself. For streams, use
    /// [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later).
    ///
    /// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/what_callers_see/
    fn annotate(&self, decision: &mut Decision, response: &mut Res) {
        let _ = (decision, response);
    }
}

#[diagnostic::do_not_recommend]
impl<F, Req, Res, E> Respond<Req, Res, E> for F
where
    F: Fn(Req, &Refusal) -> Res,
{
    type Error = E;

    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, E> {
        Ok(self(request, &refusal))
    }
}

/// Reads on the body of a refused request. `()` drops it. See
/// [`RateLimitLayer::drain_refused`](crate::RateLimitLayer::drain_refused).
#[diagnostic::on_unimplemented(
    message = "the body of a refused `{Req}` cannot be read on",
    note = "`drain_refused` needs an `http::Request` whose body has a `Default`"
)]
pub trait Drain<Req> {
    /// Takes the body out of a refused request, before the responder sees the request.
    fn drain(&self, request: &mut Req);
}

impl<Req> Drain<Req> for () {
    fn drain(&self, _: &mut Req) {}
}

/// Returns the [`Refusal`] as an error: for servers and clients that do not speak HTTP.
///
/// For HTTP and gRPC, prefer [`HttpResponder`](crate::HttpResponder). Around a tonic `Channel` it
/// makes a `Status` with `RESOURCE_EXHAUSTED` and `RetryInfo`, while `Raise` makes one with
/// `Unknown`. The guide's [gRPC] page has a responder that keeps both the code and the refusal. An
/// axum `Router` does not accept a service that can fail.
///
/// The service's error becomes a [`BoxError`]. `error.downcast_ref::<Refusal>()` finds the refusal
/// in it. In a tonic `Status`, the refusal is the [`source`](std::error::Error::source).
///
/// [gRPC]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/grpc/
#[derive(Clone, Copy, Debug, Default)]
pub struct Raise;

impl<Req, Res, E> Respond<Req, Res, E> for Raise
where
    BoxError: From<E>,
{
    type Error = BoxError;

    fn reject(&self, _request: Req, refusal: Refusal) -> Result<Res, BoxError> {
        Err(refusal.into())
    }
}
