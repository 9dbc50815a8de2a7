//! The futures of this crate's services and limiters, for code that names their types.
//!
//! You do not need these names to await a decision: `limiter.check(&charge).await`. The future of a
//! wrapper is `<DenyCache<L> as Limiter>::Future`, a [`WrappedFuture`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pub use crate::limiter::futures::*;
pub use crate::settlement::{Settled, Settlement};

use crate::limiter::{Admission, Limiter, Operation};
use crate::responder::Respond;
use crate::shared::Shared;
use crate::{Charge, Decision, Refusal};

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    ///
    /// If it is dropped before the inner service is called, the units taken are refunded. For
    /// Redis, only inside a tokio runtime, which sends the refund. A reserved wait that is over
    /// counts as used.
    pub struct ResponseFuture<S: Service<Req>, L: Limiter, K, R, Req> {
        inner: S,
        request: Option<Req>,
        decision: Option<Decision>,
        // Kept only if the key may be reset.
        charge: Option<Box<Charge>>,
        shared: Arc<Shared<L, K, R>>,
        #[pin]
        state: State<Admission<L::Future>, S::Future, L::Future, ServiceResult<S, Req>>,
    }

    impl<S: Service<Req>, L: Limiter, K, R, Req> PinnedDrop for ResponseFuture<S, L, K, R, Req> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            match this.state.project() {
                StateProj::Admitting { admission } => {
                    admission.abandon(&this.shared.limiter, this.decision);
                }
                // Without its request, a panic of the inner service ended the call.
                StateProj::Readying if this.request.is_some() => {
                    refund(this.shared, this.decision);
                }
                _ => {}
            }
        }
    }
}

/// The answer of the inner service.
type ServiceResult<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

pin_project! {
    #[project = StateProj]
    enum State<A, F, O, T> {
        Admitting { #[pin] admission: A },
        Readying,
        Calling { #[pin] reply: F },
        // Boxed, since few requests reach this state.
        Resetting { #[pin] reset: O, answer: Option<Box<T>> },
        // `None` after it was returned.
        Refusing { refusal: Option<Refusal> },
    }
}

impl<S: Service<Req>, L: Limiter, K, R, Req> ResponseFuture<S, L, K, R, Req> {
    pub(crate) fn admitting(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        admission: Admission<L::Future>,
        charge: Option<Box<Charge>>,
    ) -> Self {
        let state = State::Admitting { admission };
        Self { inner, request: Some(request), decision: None, charge, shared, state }
    }

    /// Admits a request without a charge.
    pub(crate) fn admitted(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        decision: Decision,
    ) -> Self {
        let (request, decision) = (Some(request), Some(decision));
        Self { inner, request, decision, charge: None, shared, state: State::Readying }
    }

    /// Refuses a request without asking the limiter.
    pub(crate) fn refused(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        refusal: Refusal,
    ) -> Self {
        let state = State::Refusing { refusal: Some(refusal) };
        Self { inner, request: Some(request), decision: None, charge: None, shared, state }
    }
}

impl<S, L, K, R, Req> Future for ResponseFuture<S, L, K, R, Req>
where
    S: Service<Req>,
    L: Limiter,
    R: Respond<Req, S::Response, S::Error>,
{
    type Output = Result<S::Response, R::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Admitting { admission } => {
                    match ready!(admission.poll(&this.shared.limiter, this.decision, cx)) {
                        Ok(()) => State::Readying,
                        Err(refusal) => {
                            return Poll::Ready(reject(this.shared, this.request, refusal));
                        }
                    }
                }
                StateProj::Readying => {
                    if let Err(error) = ready!(this.inner.poll_ready(cx)) {
                        refund(this.shared, this.decision);
                        return Poll::Ready(Err(error.into()));
                    }
                    if let (Some(decision), Some(request)) =
                        (this.decision.as_mut(), this.request.as_mut())
                    {
                        this.shared.respond.admit(decision, request);
                    }
                    let request = this.request.take().expect("called once");
                    State::Calling { reply: this.inner.call(request) }
                }
                StateProj::Calling { reply } => {
                    let mut result = ready!(reply.poll(cx));
                    if let Some(decision) = this.decision {
                        decision.take_back();
                        if let Ok(response) = &mut result {
                            this.shared.respond.annotate(decision, response);
                        }
                    }
                    match reset(this.shared, this.charge, this.decision, result.as_ref()) {
                        Some(reset) => State::Resetting { reset, answer: Some(Box::new(result)) },
                        None => {
                            if let Some(decision) = this.decision {
                                settle(this.shared, decision, result.as_ref());
                            }
                            return Poll::Ready(result.map_err(R::Error::from));
                        }
                    }
                }
                StateProj::Resetting { reset, answer } => {
                    let reset = ready!(reset.poll(cx));
                    let answer = answer.take().expect("answered once");
                    // If the reset fails, the charge stays, and is settled as without a reset.
                    if let (Err(_), Some(decision)) = (reset, this.decision) {
                        settle(this.shared, decision, (*answer).as_ref());
                    }
                    return Poll::Ready(answer.map_err(R::Error::from));
                }
                StateProj::Refusing { refusal } => {
                    let refusal = refusal.take().expect("rejected once");
                    return Poll::Ready(reject(this.shared, this.request, refusal));
                }
            };
            this.state.set(next);
        }
    }
}

/// Answers a request that does not reach the inner service.
fn reject<L, K, R, Req, Res, E>(
    shared: &Shared<L, K, R>,
    request: &mut Option<Req>,
    refusal: Refusal,
) -> Result<Res, R::Error>
where
    R: Respond<Req, Res, E>,
{
    if let Refusal::Undecided(why) = &refusal {
        shared.watch.undecided(why);
    }
    shared.respond.reject(request.take().expect("rejected once"), refusal)
}

/// Refunds a request that does not reach the inner service.
fn refund<L: Limiter, K, R>(shared: &Shared<L, K, R>, decision: &mut Option<Decision>) {
    if let Some(reservation) = decision.as_mut().and_then(Decision::take_reservation) {
        let _ = shared.limiter.settle(reservation, 0);
    }
}

/// Resets the key of an answered request if the responder says so. If the limiter cannot reset, it
/// refunds the request.
fn reset<L, K, R, Req, Res, E>(
    shared: &Shared<L, K, R>,
    charge: &mut Option<Box<Charge>>,
    decision: &mut Option<Decision>,
    result: Result<&Res, &E>,
) -> Option<L::Future>
where
    L: Limiter,
    R: Respond<Req, Res, E>,
{
    let charge = charge.take()?;
    let answered = decision.as_ref().filter(|decision| decision.reservation().is_some())?;
    if !shared.respond.resets(answered, result) {
        return None;
    }
    let reset = shared.limiter.operate(Operation::Reset, &charge);
    if reset.is_none() {
        refund(shared, decision);
    }
    reset
}

/// Refunds or takes the difference between the charge and the final cost. The response does not
/// wait for it.
fn settle<L, K, R, Req, Res, E>(
    shared: &Shared<L, K, R>,
    decision: &mut Decision,
    result: Result<&Res, &E>,
) where
    L: Limiter,
    R: Respond<Req, Res, E>,
{
    let Some(reservation) = decision.reservation() else { return };
    // Held units must be settled even if the request cost what was charged.
    let held = Some(reservation.cost()).filter(|_| reservation.is_held());
    if let Some(actual) = shared.respond.actual_cost(decision, result).or(held)
        && let Some(reservation) = decision.take_reservation()
    {
        let most = if shared.respond.takes_more() { u64::MAX } else { reservation.cost() };
        let _ = shared.limiter.settle(reservation, actual.min(most));
    }
}

debug_by_name!([S: Service<Req>, L: Limiter, K, R, Req] ResponseFuture<S, L, K, R, Req>);
