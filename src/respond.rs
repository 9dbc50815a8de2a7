//! What a caller sees when its request does not pass.
//!
//! [`HttpResponder`](crate::HttpResponder) is what a layer starts with. [`Raise`] is for services
//! that have no response to make up, and a closure takes the request and its [`Refusal`] and
//! returns the response.
//!
//! ```
//! use tower_sluice::{Refusal, Respond};
//!
//! let teapot = |_request: http::Request<()>, refusal: Refusal| {
//!     let mut response = http::Response::new(refusal.to_string());
//!     *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
//!     response
//! };
//! let response: Result<_, std::io::Error> = teapot.reject(http::Request::new(()), Refusal::NoKey);
//! assert_eq!(response.unwrap().body(), "request has no key to limit by");
//! ```

use std::time::Duration;

use tower::BoxError;

use crate::{Decision, Refusal};

/// Makes the answer to a request that does not pass.
pub trait Respond<Req, Res, E> {
    /// The error of the limited service: the inner one's, unless refusals are errors too.
    type Error: From<E>;

    /// Answers `request`, which the inner service never sees.
    ///
    /// # Errors
    ///
    /// If a refusal is to be an error of the service.
    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, Self::Error>;

    /// The longest that the caller of `request` would wait, if it says so. Default: it does not.
    fn max_wait(&self, request: &Req) -> Option<Duration> {
        let _ = request;
        None
    }

    /// Whether [`actual_cost`](Respond::actual_cost) may return more than was charged. Default: no.
    ///
    /// If so, a layer passes no request to a limiter that cannot take more. It refuses each as
    /// undecided, with an error of kind [`Configuration`](crate::ErrorKind::Configuration).
    fn takes_more(&self) -> bool {
        false
    }

    /// The units that an admitted request cost in the end, now that it is answered. Default:
    /// `None`, which keeps what was charged.
    ///
    /// It is asked only if something was charged, and once. More than was charged counts as what was
    /// charged, unless [`takes_more`](Respond::takes_more) says so.
    fn actual_cost(&self, decision: &Decision, response: &Res) -> Option<u64> {
        let _ = (decision, response);
        None
    }

    /// Adds to the response of an admitted request what its caller should know. Default: nothing.
    ///
    /// It comes before [`actual_cost`](Respond::actual_cost). A responder that takes the decision's
    /// [`reservation`](Decision::reservation) settles it itself.
    fn annotate(&self, decision: &mut Decision, response: &mut Res) {
        let _ = (decision, response);
    }
}

impl<F, Req, Res, E> Respond<Req, Res, E> for F
where
    F: Fn(Req, Refusal) -> Res,
{
    type Error = E;

    fn reject(&self, request: Req, refusal: Refusal) -> Result<Res, E> {
        Ok(self(request, refusal))
    }
}

/// Returns the [`Refusal`] as an error: for services that have no response to make up.
///
/// The service's error becomes a [`BoxError`], from which the refusal is had by `downcast_ref`.
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
