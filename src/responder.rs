//! Responders, which answer the requests that do not pass.

use std::time::Duration;

use tower::BoxError;

use crate::{Decision, Refusal};

/// Makes the answer to a request that does not pass.
///
/// A layer starts with [`HttpResponder`](crate::HttpResponder). For services that do not speak HTTP
/// there is [`Raise`], which returns the refusal as an error. A closure takes the request and its
/// [`Refusal`], and returns the response:
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_sluice::respond::Respond;
/// use tower_sluice::{Decision, Outcome, Refusal};
///
/// let teapot = |_request: Request<()>, refusal: Refusal| {
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
/// [`HttpResponder::body`](crate::HttpResponder::body). A closure answers gRPC requests too, which
/// then get no gRPC status unless it makes one. A responder of your own around `HttpResponder`
/// passes on every method: without [`admit`](Respond::admit) and [`annotate`](Respond::annotate)
/// requests and responses get neither fields nor a report.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a refused request of this service",
    label = "makes no `{Res}` for a refused `{Req}`",
    note = "a service that does not speak HTTP needs `.respond(Raise)`: refusals become its errors",
    note = "or `.respond(|request, refusal| ..)`: the closure returns a response; with axum, end it with `.into_response()`",
    note = "a body without `Default` needs `.respond(HttpResponder::new().empty_body(|| ..))`",
    note = "the closure of `HttpResponder::body` returns the service's body type; with axum `axum::body::Body`"
)]
pub trait Respond<Req, Res, E> {
    /// The error of the limited service: the inner one's, unless refusals are errors too.
    type Error: From<E>;

    /// Answers `request`, which the inner service never sees.
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

    /// Returns true if [`actual_cost`](Respond::actual_cost) may return more than was charged.
    /// Default: `false`.
    ///
    /// If so, a layer passes no request to a limiter that cannot take more. It refuses each as
    /// undecided, with an error of kind [`Configuration`](crate::ErrorKind::Configuration).
    fn takes_more(&self) -> bool {
        false
    }

    /// The units that an admitted request cost in the end, now that the inner service has answered
    /// it or failed. Default: `None`, which keeps what was charged; what a
    /// [`Budget`](crate::algorithm::Budget) holds is then settled with its full cost.
    ///
    /// It is asked only if something was charged, and once. The decision's
    /// [`reservation`](Decision::reservation) says how many units that are. A larger number counts
    /// as those, unless [`takes_more`](Respond::takes_more) says so.
    fn actual_cost(&self, decision: &Decision, result: Result<&Res, &E>) -> Option<u64> {
        let _ = (decision, result);
        None
    }

    /// Announces that [`resets`](Respond::resets) may return `true`: a layer then keeps the charge
    /// of each request until that is answered. Default: no.
    fn may_reset(&self) -> bool {
        false
    }

    /// Decides to start the key of an admitted request anew, now that the inner service has
    /// answered it or failed: see [`LimiterExt::reset`](crate::LimiterExt::reset). Default: no.
    ///
    /// It is asked before [`actual_cost`](Respond::actual_cost), which is not asked after a reset,
    /// and only if something was charged. The response waits for the reset.
    fn resets(&self, decision: &Decision, result: Result<&Res, &E>) -> bool {
        let _ = (decision, result);
        false
    }

    /// Adds to an admitted request what the inner service should know of the decision. It is called
    /// once, just before the inner service is. Default: nothing.
    /// [`HttpResponder`](crate::HttpResponder) adds a
    /// [`DecisionReport`](crate::respond::DecisionReport) if that is asked for.
    fn admit(&self, decision: &mut Decision, request: &mut Req) {
        let _ = (decision, request);
    }

    /// Adds to the response of an admitted request what its caller should know, such as how long it
    /// [`waited`](Decision::waited). Default: nothing. The guide's
    /// [recipes](crate::guide::recipes) have an example.
    ///
    /// It is called before [`actual_cost`](Respond::actual_cost). A responder that takes the
    /// decision's [`reservation`](Decision::take_reservation) settles it itself. For streams there
    /// is [`RateLimitLayer::count_body`](crate::RateLimitLayer::count_body).
    fn annotate(&self, decision: &mut Decision, response: &mut Res) {
        let _ = (decision, response);
    }
}

#[diagnostic::do_not_recommend]
impl<F, Req, Res, E> Respond<Req, Res, E> for F
where
    F: Fn(Req, Refusal) -> Res,
{
    type Error = E;

    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, E> {
        Ok(self(request, refusal))
    }
}

/// Returns the [`Refusal`] as an error: for services that do not speak HTTP, servers and clients
/// alike.
///
/// HTTP and gRPC are better off with [`HttpResponder`](crate::HttpResponder). Around a tonic
/// `Channel` it makes a `Status` with `RESOURCE_EXHAUSTED` and `RetryInfo`, where `Raise` makes one
/// with `Unknown`. The guide's [gRPC](crate::guide::grpc) page has a responder that keeps both the
/// code and the refusal. An axum `Router` takes no service that can fail: with `Raise` the compiler
/// says that `Infallible: From<Box<dyn Error + Send + Sync>>` is not satisfied.
///
/// The service's error becomes a [`BoxError`]. `downcast_ref` finds the refusal in it; in a tonic
/// `Status` it is the [`source`](std::error::Error::source):
///
/// ```
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_sluice::key::Global;
/// use tower_sluice::respond::Raise;
/// use tower_sluice::testing::Scripted;
/// use tower_sluice::{RateLimitLayer, Refusal};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let limit = RateLimitLayer::new(Scripted::new().never(), Global).respond(Raise);
/// let inner = service_fn(|name: &'static str| async { Ok::<_, BoxError>(name.len()) });
/// let error = limit.layer(inner).oneshot("alice").await.unwrap_err();
/// assert!(matches!(error.downcast_ref(), Some(Refusal::Denied(_))));
/// # });
/// ```
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
