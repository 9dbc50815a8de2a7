//! The futures of the services and limiters of this crate, for code that names their types.
//!
//! A decision needs none of these names: `limiter.check(&charge).await`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pub use crate::limiter::{
    AcquireFuture, BoxedFuture, MemoryFuture, OperationFuture, OrElseFuture, TimeoutFuture,
};
#[cfg(feature = "redis")]
pub use crate::limiter::{AllAtOnceFuture, RedisFuture};

use crate::limiter::{Admission, Limiter};
use crate::shared::Shared;
use crate::{Charge, Decision, Error, ErrorKind, Refusal, Respond, Settlement};

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    ///
    /// Dropping it while it waits gives its slot back.
    pub struct ResponseFuture<S: Service<Req>, L: Limiter, K, R, Req> {
        inner: S,
        request: Option<Req>,
        decision: Option<Decision>,
        // What was charged, if it is to be settled.
        charge: Option<Charge>,
        shared: Arc<Shared<L, K, R>>,
        #[pin]
        state: State<Admission<L::Future>, S::Future>,
    }

    impl<S: Service<Req>, L: Limiter, K, R, Req> PinnedDrop for ResponseFuture<S, L, K, R, Req> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let StateProj::Admitting { admission } = this.state.project() {
                admission.abandon(&this.shared.limiter, this.decision);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<A, F> {
        Admitting { #[pin] admission: A },
        Readying,
        Calling { #[pin] reply: F },
        Keyless,
        Unable,
    }
}

impl<S: Service<Req>, L: Limiter, K, R, Req> ResponseFuture<S, L, K, R, Req> {
    pub(crate) fn admitting(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        admission: Admission<L::Future>,
        charge: Option<Charge>,
    ) -> Self {
        let state = State::Admitting { admission };
        let mut future = Self::new(request, inner, shared, state);
        future.charge = charge;
        future
    }

    pub(crate) fn exempt(request: Req, inner: S, shared: Arc<Shared<L, K, R>>) -> Self {
        Self::new(request, inner, shared, State::Readying)
    }

    pub(crate) fn keyless(request: Req, inner: S, shared: Arc<Shared<L, K, R>>) -> Self {
        Self::new(request, inner, shared, State::Keyless)
    }

    /// Refuses what the limiter could not settle.
    pub(crate) fn unable(request: Req, inner: S, shared: Arc<Shared<L, K, R>>) -> Self {
        Self::new(request, inner, shared, State::Unable)
    }

    fn new(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        state: State<Admission<L::Future>, S::Future>,
    ) -> Self {
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
                            let request = this.request.take().expect("rejected once");
                            return Poll::Ready(this.shared.respond.reject(request, refusal));
                        }
                    }
                }
                StateProj::Readying => {
                    ready!(this.inner.poll_ready(cx))?;
                    let request = this.request.take().expect("called once");
                    State::Calling { reply: this.inner.call(request) }
                }
                StateProj::Calling { reply } => {
                    let mut response = ready!(reply.poll(cx))?;
                    if let Some(decision) = this.decision {
                        if let Some(charge) = this.charge.take() {
                            settle(this.shared, decision, charge, &response);
                        }
                        this.shared.respond.annotate(decision, &mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Keyless => {
                    let request = this.request.take().expect("rejected once");
                    return Poll::Ready(this.shared.respond.reject(request, Refusal::NoKey));
                }
                StateProj::Unable => {
                    let request = this.request.take().expect("rejected once");
                    let message = "the responder may take more, and the limiter cannot take";
                    let refusal = Refusal::Undecided(Error::new(ErrorKind::Configuration, message));
                    return Poll::Ready(this.shared.respond.reject(request, refusal));
                }
            };
            this.state.set(next);
        }
    }
}

/// Gives back or takes what the responder says; nobody waits for it.
fn settle<L, K, R, Req, Res, E>(
    shared: &Shared<L, K, R>,
    decision: &mut Decision,
    charge: Charge,
    response: &Res,
) where
    L: Limiter,
    R: Respond<Req, Res, E>,
{
    match shared.respond.settle(decision, response) {
        Settlement::Refund => {
            if let Some(reservation) = decision.reservation() {
                shared.limiter.refund(reservation);
            }
        }
        Settlement::Take(0) | Settlement::Keep => {}
        Settlement::Take(units) => {
            let taken = shared.limiter.owe(&charge.cost(units).settling(decision));
            debug_assert!(
                taken,
                "a responder that does not say so takes from a limiter that cannot"
            );
        }
    }
}

impl<S: Service<Req>, L: Limiter, K, R, Req> fmt::Debug for ResponseFuture<S, L, K, R, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
