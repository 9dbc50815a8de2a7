//! A limiter with somebody who sees its charges and their answers: `inspect`, `metrics`, `trace`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{Limiter, Operation};
use crate::reservation::Reservation;
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error};

/// Sees the charges of a limiter and their answers. Estimates and other operations pass unseen.
pub trait Watch {
    /// A charge that has no answer yet. It is dropped without one if the caller leaves.
    type Open;

    /// Sees a charge before the limiter does. `None`: its answer is not looked at.
    fn open(&self, charge: &Charge) -> Option<Self::Open>;

    /// Sees each poll of the caller before the limiter does. A future that is never polled asks
    /// nothing, so a charge begins with the first.
    fn poll(open: &mut Self::Open) {
        let _ = open;
    }

    /// Sees the answer before the caller does.
    fn close(open: Self::Open, answer: &mut Result<Decision, Error>);

    /// Sees the decision about a request without a key, or why there is none.
    fn keyless(&self, result: Result<&Decision, &Error>) {
        let _ = result;
    }

    /// Sees the settlement of `cost` units at `actual`.
    fn settled(&self, cost: u64, actual: u64, settlement: &mut Settlement) {
        let _ = (cost, actual, settlement);
    }
}

/// A limiter with a [`Watch`]. It decides like its inner limiter.
#[derive(Clone, Debug)]
pub(super) struct Watched<L, W> {
    pub(super) inner: L,
    pub(super) watch: W,
}

impl<L: Limiter, W: Watch> Limiter for Watched<L, W> {
    type Future = WatchedFuture<L::Future, W>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let open = self.watch.open(charge);
        WatchedFuture { answer: self.inner.check(charge), open }
    }

    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        let answer = self.inner.check_keyless(why);
        self.watch.keyless(answer.as_ref().ok_or(why));
        answer
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let cost = reservation.cost();
        let mut settlement = self.inner.settle(reservation, actual)?;
        self.watch.settled(cost, actual, &mut settlement);
        Ok(settlement)
    }

    pass_on!(can_take_more);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let answer = self.inner.operate(operation, charge)?;
        Some(WatchedFuture { answer, open: None })
    }
}

pin_project! {
    /// The future of [`Watched`].
    pub struct WatchedFuture<C, W: Watch> {
        #[pin]
        answer: C,
        // None: the answer is not looked at, or it was.
        open: Option<W::Open>,
    }
}

impl<C, W> Future for WatchedFuture<C, W>
where
    C: Future<Output = Result<Decision, Error>>,
    W: Watch,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(open) = this.open {
            W::poll(open);
        }
        let mut answer = ready!(this.answer.poll(cx));
        if let Some(open) = this.open.take() {
            W::close(open, &mut answer);
        }
        Poll::Ready(answer)
    }
}

debug_by_name!([C, W: Watch] WatchedFuture<C, W>);
