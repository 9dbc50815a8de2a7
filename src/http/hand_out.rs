//! A responder that lets a handler or a body settle a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use crate::decision::Origin;
use crate::responder::Respond;
use crate::unsettled::{SettleBy, SettleHandle};
use crate::{Decision, Refusal};

/// A responder that gives each request's [`SettleHandle`](crate::respond::SettleHandle) to the
/// handler or to the body. Made by
/// [`RateLimitLayer::settle_in_handler`](crate::RateLimitLayer::settle_in_handler) and
/// [`RateLimitLayer::count_body`](crate::RateLimitLayer::count_body).
pub struct HandOut<R> {
    respond: Arc<R>,
    settle_by: SettleBy,
    to: Recipient,
}

/// The receiver of the units that a request took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Recipient {
    /// The handler, in the extensions of the request.
    Handler,
    /// The body, in the extensions of the response.
    Body,
}

impl<R> HandOut<R> {
    pub(crate) fn new(respond: Arc<R>, settle_by: SettleBy, to: Recipient) -> Self {
        Self { respond, settle_by, to }
    }
}

impl<R, B, C, E> Respond<Request<B>, Response<C>, E> for HandOut<R>
where
    R: Respond<Request<B>, Response<C>, E>,
{
    type Error = R::Error;

    fn reject(&self, request: Request<B>, refusal: Refusal) -> Result<Response<C>, R::Error> {
        self.respond.reject(request, refusal)
    }

    fn max_wait(&self, request: &Request<B>) -> Option<Duration> {
        self.respond.max_wait(request)
    }

    /// Returns true for a body, which may be of any size.
    fn takes_more(&self) -> bool {
        self.to == Recipient::Body || self.respond.takes_more()
    }

    fn may_reset(&self) -> bool {
        self.respond.may_reset()
    }

    fn resets(&self, decision: &Decision, result: Result<&Response<C>, &E>) -> bool {
        self.respond.resets(decision, result)
    }

    fn actual_cost(&self, decision: &Decision, result: Result<&Response<C>, &E>) -> Option<u64> {
        self.respond.actual_cost(decision, result)
    }

    fn admit(&self, decision: &mut Decision, request: &mut Request<B>) {
        self.respond.admit(decision, request);
        // A layer that limits the request has the only handle, which is empty where it failed open:
        // the handler must not settle its cost with an outer limiter.
        let is_limited = decision.reservation().is_some()
            || !matches!(decision.origin(), Origin::Exempt | Origin::Off);
        let is_first = request.extensions().get::<SettleHandle>().is_none();
        if self.to == Recipient::Handler && (is_limited || is_first) {
            request.extensions_mut().insert(decision.hand_out(&self.settle_by));
        }
    }

    fn annotate(&self, decision: &mut Decision, response: &mut Response<C>) {
        self.respond.annotate(decision, response);
        if self.to == Recipient::Body {
            response.extensions_mut().insert(decision.hand_out(&self.settle_by));
        }
    }
}

debug_by_name!([R: fmt::Debug] HandOut<R>: respond, to);
