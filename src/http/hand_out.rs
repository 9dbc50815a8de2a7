//! What lets a handler or a body settle a request.

use http::{Request, Response};

use crate::Decision;
use crate::decision::Origin;
use crate::settle::ActualCost;
use crate::unsettled::{SettleBy, SettleHandle};

/// Gives each request's [`SettleHandle`] to the handler or to the body. Made by
/// [`RateLimitLayer::settle_in_handler`](crate::RateLimitLayer::settle_in_handler) and
/// [`RateLimitLayer::count_body`](crate::RateLimitLayer::count_body).
pub struct HandOut {
    pub(crate) settle_by: SettleBy,
    pub(crate) to: Recipient,
}

/// The receiver of the units that a request took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Recipient {
    /// The handler, in the extensions of the request.
    Handler,
    /// The body, in the extensions of the response.
    Body,
}

impl<B, C, E> ActualCost<Request<B>, Response<C>, E> for HandOut {
    /// Returns true for a body, which may be of any size.
    fn takes_more(&self) -> bool {
        self.to == Recipient::Body
    }

    fn admit(&self, decision: &mut Decision, request: &mut Request<B>) {
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
        if self.to == Recipient::Body {
            response.extensions_mut().insert(decision.hand_out(&self.settle_by));
        }
    }
}

debug_by_name!([] HandOut: to);
