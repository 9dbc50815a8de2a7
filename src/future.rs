//! The story of one request: admitted, made ready for, called; or rejected.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::layer::Shared;
use crate::limiter::{Admission, Limiter};
use crate::{Decision, Refusal, Respond};

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    ///
    /// Dropping it while it waits gives its slot back.
    pub struct ResponseFuture<S: Service<Req>, L: Limiter, K, R, Req> {
        inner: S,
        request: Option<Req>,
        shared: Arc<Shared<L, K, R>>,
        #[pin]
        state: State<Admission<Arc<Shared<L, K, R>>>, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<A, F> {
        Admitting { #[pin] admission: A },
        Readying { decision: Option<Decision> },
        Calling { #[pin] reply: F, decision: Option<Decision> },
        Rejecting { refusal: Option<Refusal> },
    }
}

impl<S: Service<Req>, L: Limiter, K, R, Req> ResponseFuture<S, L, K, R, Req> {
    pub(crate) fn admitting(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        admission: Admission<Arc<Shared<L, K, R>>>,
    ) -> Self {
        Self { inner, request: Some(request), shared, state: State::Admitting { admission } }
    }

    pub(crate) fn exempt(request: Req, inner: S, shared: Arc<Shared<L, K, R>>) -> Self {
        let state = State::Readying { decision: None };
        Self { inner, request: Some(request), shared, state }
    }

    pub(crate) fn rejecting(
        request: Req,
        inner: S,
        shared: Arc<Shared<L, K, R>>,
        refusal: Refusal,
    ) -> Self {
        let state = State::Rejecting { refusal: Some(refusal) };
        Self { inner, request: Some(request), shared, state }
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
                StateProj::Admitting { admission } => match ready!(admission.poll(cx)) {
                    Ok(decision) => State::Readying { decision: Some(decision) },
                    Err(refusal) => State::Rejecting { refusal: Some(refusal) },
                },
                StateProj::Readying { decision } => {
                    ready!(this.inner.poll_ready(cx))?;
                    let request = this.request.take().expect("called once");
                    State::Calling { reply: this.inner.call(request), decision: decision.take() }
                }
                StateProj::Calling { reply, decision } => {
                    let mut response = ready!(reply.poll(cx))?;
                    if let Some(decision) = decision {
                        this.shared.respond.annotate(decision, &mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Rejecting { refusal } => {
                    let request = this.request.take().expect("rejected once");
                    let refusal = refusal.take().expect("rejected once");
                    return Poll::Ready(this.shared.respond.reject(request, refusal));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Req>, L: Limiter, K, R, Req> fmt::Debug for ResponseFuture<S, L, K, R, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
