//! Hands the units that a request took to its handler, or to the body of its response.

use http::{Request, Response};
use http_body::{Body, Frame};

use super::count_body::CountedBody;
use crate::core::Decision;
use crate::core::decision::Origin;
use crate::tower::settle::{Later, SettleHandle, SettleLater};

/// Lets the handler settle: see
/// [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later).
#[derive(Clone, Copy, Debug, Default)]
pub struct InHandler;

impl<B, C> SettleLater<Request<B>, Response<C>> for Later<InHandler> {
    type Response = Response<C>;

    fn hand_out(&self, decision: &mut Decision, request: &mut Request<B>) -> Option<SettleHandle> {
        hand_out(self, decision, request)
    }

    fn respond(&self, response: Response<C>, _: Option<&mut Decision>) -> Response<C> {
        response
    }
}

/// Settles what was charged when the body of the response has ended, or was dropped: see
/// [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later).
///
/// It is for a [`Concurrency`](crate::algorithm::Concurrency): a request counts while its body
/// runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithBody;

impl<B, C: Body> SettleLater<Request<B>, Response<C>> for Later<WithBody> {
    type Response = Response<CountedBody<C, fn(&Frame<C::Data>) -> u64>>;

    fn hand_out(&self, decision: &mut Decision, request: &mut Request<B>) -> Option<SettleHandle> {
        hand_out(self, decision, request)
    }

    fn respond(&self, response: Response<C>, decision: Option<&mut Decision>) -> Self::Response {
        let unsettled = decision.and_then(|decision| self.take(decision));
        let nothing: fn(&Frame<C::Data>) -> u64 = |_| 0;
        response.map(|body| CountedBody::new(body, nothing, unsettled).at_full_cost())
    }
}

impl<B, C, F> SettleLater<Request<B>, Response<C>> for Later<F>
where
    C: Body,
    F: Fn(&Frame<C::Data>) -> u64,
{
    type Response = Response<CountedBody<C, F>>;

    fn hand_out(&self, decision: &mut Decision, request: &mut Request<B>) -> Option<SettleHandle> {
        hand_out(self, decision, request)
    }

    fn respond(
        &self,
        response: Response<C>,
        decision: Option<&mut Decision>,
    ) -> Response<CountedBody<C, F>> {
        let unsettled = decision.and_then(|decision| self.take(decision));
        response.map(|body| CountedBody::shared(body, self.by.clone(), unsettled))
    }
}

/// Moves the units into a handle, in the extensions of the request.
fn hand_out<W, B>(
    later: &Later<W>,
    decision: &mut Decision,
    request: &mut Request<B>,
) -> Option<SettleHandle> {
    // A layer that limits the request has the only handle, which is empty where it failed open: the
    // handler must not settle its cost with an outer limiter.
    let is_limited = decision.reservation().is_some()
        || !matches!(decision.origin(), Origin::Exempt | Origin::Off);
    if !is_limited && request.extensions().get::<SettleHandle>().is_some() {
        return None;
    }
    let handle = later.take(decision).map(SettleHandle::new).unwrap_or_default();
    request.extensions_mut().insert(handle.clone());
    Some(handle)
}
