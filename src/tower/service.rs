//! The service, which charges a request when it is called, not in `poll_ready`.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tower_service::Service;

use crate::core::decision::Origin;
use crate::core::extractor::{KeyExtractor, Keyed};
use crate::core::{Charge, Decision, Outcome, Refusal};
use crate::limiter::{Admission, Limiter};
use crate::tower::future::ResponseFuture;
use crate::tower::reject::{Drain, Respond};
use crate::tower::settle::{SettleAnswered, SettleLater};
use crate::tower::shared::{Hooks, Shared};

/// A limited service. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is always ready. Each call clones the inner service. Once the request is admitted, it waits
/// until the clone is ready. So a request that waits for its slot or is refused uses no capacity of
/// the inner service. Callers do not see the back-pressure of the inner service: put a `LoadShed`
/// or a `ConcurrencyLimit` inside of the layer.
///
/// An admitted request is refunded if it does not reach the inner service. Once the inner service
/// is called, the charge stays, unless the layer [settles](crate::Settle) it.
///
/// If the compiler finds no method `call`, `ready` or `oneshot` on it, one of these bounds is not
/// met: the inner service is [`Clone`], the key extractor accepts its requests, and the responder
/// makes its responses. A service that does not speak HTTP needs `.respond(Raise)`, and cannot use
/// `settle_later`.
pub struct RateLimit<S, L, K, R, H = Hooks> {
    pub(crate) inner: S,
    pub(crate) shared: Arc<Shared<L, K, R, H>>,
}

impl<S, L, K, R, H> RateLimit<S, L, K, R, H> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<Req, S, L, K, R, F, W, D> Service<Req> for RateLimit<S, L, K, R, Hooks<F, W, D>>
where
    S: Service<Req> + Clone,
    L: Limiter,
    K: KeyExtractor<Req>,
    R: Respond<Req, S::Response, S::Error>,
    F: SettleAnswered<S::Response, S::Error>,
    W: SettleLater<Req, S::Response>,
    D: Drain<Req>,
{
    type Response = W::Response;
    type Error = R::Error;
    type Future = ResponseFuture<S, L, K, R, Hooks<F, W, D>, Req>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let inner = self.inner.clone();
        match shared.key.extract(&request) {
            Keyed::Charge(mut charge) => {
                charge.at_least_one_unit();
                let own = charge.longest_wait().unwrap_or(shared.max_wait);
                // A caller can shorten a wait, but not lengthen it.
                let callers = if own.is_zero() { None } else { shared.respond.max_wait(&request) };
                charge.max_wait = Some(callers.map_or(own, |callers| callers.min(own)));
                let (keeps, looks) = (F::NEEDS_CHARGE, F::LOOKS_AGAIN);
                let (admission, kept) = admission(&shared, charge, keeps, looks);
                ResponseFuture::admitting(request, inner, shared, admission, kept)
            }
            Keyed::Exempt => {
                let decision = Decision::new(Outcome::Allow).with_origin(Origin::Exempt);
                ResponseFuture::unasked(request, inner, shared, Ok(decision))
            }
            Keyed::Missing(why) => {
                let decision = shared.limiter.check_keyless(&why);
                if decision.as_ref().is_none_or(|decision| decision.origin() != Origin::Off) {
                    shared.watch.no_key(&why, decision.is_some());
                }
                let answer = decision.ok_or(Refusal::NoKey(why));
                ResponseFuture::unasked(request, inner, shared, answer)
            }
            Keyed::Invalid(why) => {
                let decision = shared.limiter.check_keyless(&why);
                let answer = decision.ok_or(Refusal::Undecided(why));
                ResponseFuture::unasked(request, inner, shared, answer)
            }
        }
    }
}

/// Asks with the `max_wait` of the charge. If too many requests already wait, this one is admitted
/// now or refused. Returns the charge too, if it is to be kept and the admission does not have it.
#[inline]
fn admission<L: Limiter, K, R, H>(
    shared: &Shared<L, K, R, H>,
    mut charge: Charge,
    keeps_charge: bool,
    looks_again: bool,
) -> (Admission<L::Future>, Option<Box<Charge>>) {
    if charge.longest_wait().is_some_and(|wait| !wait.is_zero()) {
        // Fails if the largest number of requests already waits.
        if let Ok(permit) = Arc::clone(&shared.waiters).try_acquire_owned() {
            let admission = Admission::waiting(charge, Some(permit)).looking_again(looks_again);
            return (admission, None);
        }
        charge.max_wait = Some(Duration::ZERO);
    }
    match keeps_charge {
        true => (Admission::at_once(shared.limiter.check(&charge)), Some(Box::new(charge))),
        false => (Admission::at_once(shared.limiter.check_owned(charge)), None),
    }
}

impl<S: Clone, L, K, R, H> Clone for RateLimit<S, L, K, R, H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

debug_by_name!([S: fmt::Debug, L: fmt::Debug, K, R: fmt::Debug, H] RateLimit<S, L, K, R, H>: inner, shared);
