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

pub use crate::core::settlement::{Renewal, Settled, Settlement, SettlementSender};
pub use crate::limiter::futures::*;
#[cfg(feature = "redis")]
pub use crate::redis::RedisFuture;

use crate::core::reservation::Reservation;
use crate::core::{Charge, Decision, Refusal};
use crate::limiter::hold::NextRenewal;
use crate::limiter::{Admission, Limiter, Operation};
use crate::tower::Settle;
use crate::tower::reject::{Drain, Respond};
use crate::tower::settle::{Answer, SettleAnswered, SettleHandle, SettleLater};
use crate::tower::shared::{Hooks, Shared};

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    ///
    /// If it is dropped before the inner service is called, the units taken are refunded. A
    /// reserved wait that is over counts as used.
    pub struct ResponseFuture<S: Service<Req>, L: Limiter, K, R, H, Req> {
        inner: S,
        request: Option<Req>,
        decision: Option<Decision>,
        // Kept for a reset, if a closure settles.
        charge: Option<Box<Charge>>,
        // Holds the reservation while the handler may take it.
        handle: Option<SettleHandle>,
        // Of held units, while the inner service gets ready and runs.
        renewing: Option<Box<NextRenewal>>,
        shared: Arc<Shared<L, K, R, H>>,
        #[pin]
        state: State<Admission<L::Future>, S::Future, L::Future, ServiceResult<S, Req>>,
    }

    impl<S: Service<Req>, L: Limiter, K, R, H, Req> PinnedDrop
        for ResponseFuture<S, L, K, R, H, Req>
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            *this.renewing = None;
            match this.state.as_mut().project() {
                StateProj::Admitting { admission } => {
                    admission.abandon(&this.shared.limiter, this.decision);
                }
                // Without its request, a panic of the inner service ended the call.
                StateProj::Readying if this.request.is_some() => {
                    this.shared.settle(this.decision, 0);
                }
                // The caller left, or the inner service panicked. The handler is dropped first,
                // since it may settle its units.
                _ => {
                    this.state.set(State::Refusing { refusal: None });
                    if let Some(decision) = this.decision {
                        take_back(this.handle, decision);
                        let cost = decision.reservation().map(Reservation::cost);
                        if let Some(cost) = cost.filter(|_| decision.is_at_once()) {
                            this.shared.settle(this.decision, cost);
                        }
                    }
                }
            }
        }
    }
}

type ServiceResult<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

pin_project! {
    #[project = StateProj]
    enum State<A, F, O, T> {
        Admitting { #[pin] admission: A },
        Readying,
        Calling { #[pin] reply: F },
        // Boxed, since few requests reach this state.
        Operating { #[pin] operation: O, answer: Option<Box<(Settle, T)>> },
        // `None` after it was returned.
        Refusing { refusal: Option<Refusal> },
    }
}

impl<S: Service<Req>, L: Limiter, K, R, H, Req> ResponseFuture<S, L, K, R, H, Req> {
    pub(crate) fn admitting(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R, H>>,
        admission: Admission<L::Future>,
        charge: Option<Box<Charge>>,
    ) -> Self {
        let state = State::Admitting { admission };
        let (request, decision, handle, renewing) = (Some(request), None, None, None);
        Self { inner, request, decision, charge, handle, renewing, shared, state }
    }

    pub(crate) fn unasked(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R, H>>,
        answer: Result<Decision, Refusal>,
    ) -> Self {
        let (decision, state) = match answer {
            Ok(decision) => (Some(decision), State::Readying),
            Err(refusal) => (None, State::Refusing { refusal: Some(refusal) }),
        };
        let (request, charge, handle, renewing) = (Some(request), None, None, None);
        Self { inner, request, decision, charge, handle, renewing, shared, state }
    }
}

impl<S, L, K, R, F, W, D, Req> Future for ResponseFuture<S, L, K, R, Hooks<F, W, D>, Req>
where
    S: Service<Req>,
    L: Limiter,
    R: Respond<Req, S::Response, S::Error>,
    F: SettleAnswered<S::Response, S::Error>,
    W: SettleLater<Req, S::Response>,
    D: Drain<Req>,
{
    type Output = Result<W::Response, R::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Admitting { mut admission } => {
                    let limiter = &this.shared.limiter;
                    match ready!(admission.as_mut().poll(limiter, this.decision, cx)) {
                        Ok(()) => {
                            if F::NEEDS_CHARGE && this.charge.is_none() {
                                *this.charge = admission.take_charge().map(Box::new);
                            }
                            State::Readying
                        }
                        Err(refusal) => {
                            return Poll::Ready(reject(this.shared, this.request, refusal));
                        }
                    }
                }
                StateProj::Readying => {
                    let Poll::Ready(is_ready) = this.inner.poll_ready(cx) else {
                        let limiter = &*this.shared.limiter;
                        renew(this.renewing, limiter, this.handle, this.decision, cx);
                        return Poll::Pending;
                    };
                    if let Err(error) = is_ready {
                        *this.renewing = None;
                        this.shared.settle(this.decision, 0);
                        return Poll::Ready(Err(error.into()));
                    }
                    if let (Some(decision), Some(request)) =
                        (this.decision.as_mut(), this.request.as_mut())
                    {
                        this.shared.respond.admit(decision, request);
                        *this.handle = this.shared.hooks.later.hand_out(decision, request);
                        // The handler renews what it takes.
                        this.renewing.take_if(|_| this.handle.is_some());
                    }
                    let request = this.request.take().expect("called once");
                    State::Calling { reply: this.inner.call(request) }
                }
                StateProj::Calling { reply } => {
                    let Poll::Ready(mut result) = reply.poll(cx) else {
                        let limiter = &*this.shared.limiter;
                        renew(this.renewing, limiter, this.handle, this.decision, cx);
                        return Poll::Pending;
                    };
                    let settle = match this.decision {
                        Some(decision) => {
                            take_back(this.handle, decision);
                            if let Ok(response) = &mut result {
                                this.shared.respond.annotate(decision, response);
                            }
                            let hooks = &this.shared.hooks;
                            match decision.reservation() {
                                Some(_) => {
                                    hooks.settle.settle(Answer { decision, result: &result })
                                }
                                None => Settle::Keep,
                            }
                        }
                        None => Settle::Keep,
                    };
                    let charge = if F::NEEDS_CHARGE { this.charge.take() } else { None };
                    let operation = charge.and_then(|charge| {
                        this.shared.limiter.operate(operation_of(settle)?, &charge)
                    });
                    match operation {
                        Some(operation) => {
                            State::Operating { operation, answer: Some(Box::new((settle, result))) }
                        }
                        None => {
                            let answer = answer(this.shared, this.decision, settle, result);
                            return Poll::Ready(answer);
                        }
                    }
                }
                StateProj::Operating { operation, answer: result } => {
                    let is_done = ready!(operation.poll(cx)).is_ok();
                    let (settle, result) = *result.take().expect("answered once");
                    let settle = match settle {
                        Settle::Reset => {
                            // If the reset fails, the charge stays.
                            this.decision.take_if(|_| is_done);
                            Settle::Keep
                        }
                        // A pause settles nothing.
                        _ => Settle::Later,
                    };
                    let answer = answer(this.shared, this.decision, settle, result);
                    return Poll::Ready(answer);
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

fn operation_of(settle: Settle) -> Option<Operation> {
    match settle {
        Settle::Reset => Some(Operation::Reset),
        Settle::Pause(time) => Some(Operation::Pause(time)),
        _ => None,
    }
}

/// Renews held units for as long as the inner service gets ready or runs.
#[inline]
fn renew<L: Limiter>(
    renewing: &mut Option<Box<NextRenewal>>,
    limiter: &L,
    handle: &Option<SettleHandle>,
    decision: &mut Option<Decision>,
    cx: &mut Context<'_>,
) {
    loop {
        let next = match renewing {
            Some(next) => next,
            None => {
                let renewal = match handle {
                    Some(handle) => handle.renew(),
                    None => decision
                        .as_mut()
                        .and_then(Decision::held_reservation)
                        .and_then(|reservation| limiter.renew(reservation)),
                };
                let Some(next) = renewal.and_then(NextRenewal::new) else { return };
                renewing.insert(Box::new(next))
            }
        };
        if Pin::new(next).poll(cx).is_pending() {
            return;
        }
        *renewing = None;
    }
}

#[inline]
fn take_back(handle: &mut Option<SettleHandle>, decision: &mut Decision) {
    if let Some(unsettled) = handle.take().and_then(|handle| handle.take()) {
        decision.put_back(unsettled.reservation);
    }
}

fn reject<L, K, R, F, W, D, Req, Res, E>(
    shared: &Shared<L, K, R, Hooks<F, W, D>>,
    request: &mut Option<Req>,
    refusal: Refusal,
) -> Result<W::Response, R::Error>
where
    R: Respond<Req, Res, E>,
    W: SettleLater<Req, Res>,
    D: Drain<Req>,
{
    if let Refusal::Undecided(why) = &refusal {
        shared.watch.undecided(why);
    }
    let mut request = request.take().expect("rejected once");
    shared.hooks.drain.drain(&mut request);
    let response = shared.respond.reject(request, refusal)?;
    Ok(shared.hooks.later.respond(response, None))
}

/// Answers a request that reached the inner service, and settles it. The answer does not wait for
/// the settlement.
fn answer<L, K, R, F, W, D, Req, Res, E>(
    shared: &Shared<L, K, R, Hooks<F, W, D>>,
    decision: &mut Option<Decision>,
    settle: Settle,
    result: Result<Res, E>,
) -> Result<W::Response, R::Error>
where
    L: Limiter,
    R: Respond<Req, Res, E>,
    W: SettleLater<Req, Res>,
{
    let result = result.map(|response| {
        let later = decision.as_mut().filter(|_| settle == Settle::Later);
        shared.hooks.later.respond(response, later)
    });
    if let Some(reservation) = decision.as_ref().and_then(Decision::reservation) {
        let cost = reservation.cost();
        let actual = match settle {
            // Held units must be settled even if the request cost what was charged.
            Settle::Keep | Settle::Pause(_) | Settle::Later => {
                Some(cost).filter(|_| reservation.is_held())
            }
            Settle::Cost(units) => Some(units),
            Settle::Add(units) => Some(cost.saturating_add(units)),
            // A limiter that cannot reset refunds.
            Settle::Refund | Settle::Reset => Some(0),
        };
        if let Some(actual) = actual {
            shared.settle(decision, actual);
        }
    }
    Ok(result?)
}

debug_by_name!([S: Service<Req>, L: Limiter, K, R, H, Req] ResponseFuture<S, L, K, R, H, Req>);
