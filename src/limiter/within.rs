//! A deadline for the decision itself, so that a silent store costs a caller milliseconds.
//!
//! The deadline travels with the charge as its budget, because only the limiter that asks the store
//! can tell a store that is away from one that is busy. The timer here is a backstop for limiters
//! that know nothing of budgets; it rings a millisecond later, so that the better answer comes first.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::{Limiter, Operation};
use crate::{Booking, Charge, Class, Decision, Error};

const BACKSTOP: Duration = Duration::from_millis(1);

/// See [`LimiterExt::within`](crate::LimiterExt::within).
#[derive(Clone, Debug)]
pub struct Within<L> {
    inner: L,
    deadline: Duration,
}

impl<L> Within<L> {
    pub(super) fn new(inner: L, deadline: Duration) -> Self {
        Self { inner, deadline }
    }

    fn timed<F>(&self, check: F) -> WithinFuture<F> {
        WithinFuture { check, backstop: sleep(self.deadline.saturating_add(BACKSTOP)) }
    }
}

impl<L: Limiter> Limiter for Within<L> {
    type Future = WithinFuture<L::Future>;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.timed(self.inner.check(&charge.clone().cut_budget(self.deadline)))
    }

    fn owe(&self, charge: &Charge) -> bool {
        self.inner.owe(charge)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let charge = charge.clone().cut_budget(self.deadline);
        self.inner.operate(operation, &charge).map(|check| self.timed(check))
    }

    fn refund(&self, booking: Booking) -> Option<Booking> {
        self.inner.refund(booking)
    }
}

pin_project! {
    /// The future of [`Within`].
    #[derive(Debug)]
    pub struct WithinFuture<F> {
        #[pin]
        check: F,
        #[pin]
        backstop: Sleep,
    }
}

impl<F> Future for WithinFuture<F>
where
    F: Future<Output = Result<Decision, Error>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = this.check.poll(cx) {
            return Poll::Ready(answer);
        }
        this.backstop
            .poll(cx)
            .map(|()| Err(Error::new(Class::Infrastructure, "no decision in time")))
    }
}
