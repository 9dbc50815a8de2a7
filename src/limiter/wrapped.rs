//! A wrapper that sees the charges and answers of its inner limiter, and may change them:
//! `inspect`, `metrics`, `trace`, `describe`, `shadow`, `switch`, `deny_cache`, `breaker`.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Limiter, Operation};
use crate::core::reservation::Reservation;
use crate::core::settlement::Settlement;
use crate::core::{Charge, Decision, Error};

/// The behaviour of a wrapper. By default, only checks are seen.
pub trait Around {
    /// A charge without an answer yet.
    type Open;

    /// Sees a charge before the limiter does.
    fn open(&self, charge: &Charge) -> Begin<Self::Open>;

    /// Sees an operation before the limiter does.
    fn open_operation(&self, operation: Operation, charge: &Charge) -> Begin<Self::Open> {
        let _ = (operation, charge);
        Begin::Unseen
    }

    /// Sees the first poll of the caller before the limiter does. A future that is never polled
    /// asks nothing, so a charge begins with the first poll.
    ///
    /// # Errors
    ///
    /// The answer, if the limiter is not to be polled.
    fn begin(open: &mut Self::Open) -> Result<(), Error> {
        let _ = open;
        Ok(())
    }

    /// Watches a charge that the limiter has not answered yet.
    ///
    /// # Errors
    ///
    /// The answer, if nobody is to wait for the limiter any longer.
    fn wait(open: &mut Self::Open, cx: &mut Context<'_>) -> Result<(), Error> {
        let _ = (open, cx);
        Ok(())
    }

    /// Sees the answer before the caller does. Returns the answer that the caller gets.
    fn close(open: Self::Open, answer: Result<Decision, Error>) -> Result<Decision, Error>;

    /// Sees that the caller left a charge that had begun, after the future of the limiter was
    /// dropped.
    fn leave(open: Self::Open) {
        drop(open);
    }

    /// Decides about a request without a key. `ask` asks the limiter.
    fn keyless(&self, why: &Error, ask: impl FnOnce() -> Option<Decision>) -> Option<Decision> {
        let _ = why;
        ask()
    }

    /// Sees a settlement. `settle` is the limiter's.
    fn settle(
        &self,
        reservation: Reservation,
        actual: u64,
        settle: impl FnOnce(Reservation) -> Result<Settlement, Reservation>,
    ) -> Result<Settlement, Reservation> {
        let _ = actual;
        settle(reservation)
    }
}

/// The way in which a charge begins.
pub enum Begin<O> {
    /// The limiter is asked, and its answer is seen.
    Seen(O),
    /// The limiter is asked, and its answer is not seen.
    Unseen,
    /// The limiter is not asked.
    Answered(Decision),
    /// The limiter is not asked. [`Around::begin`] returns the error.
    Refused(O),
}

debug_by_name!([O] Begin<O>);

/// A limiter, and the type of [`around`](crate::limiter::around) it that adds something. Made by
/// the methods of [`LimiterExt`](crate::LimiterExt), `MetricsExt` and `TraceExt`, whose results
/// have names, such as [`DenyCache`](crate::limiter::DenyCache) or
/// [`Shadow`](crate::limiter::Shadow).
#[derive(Clone, Debug)]
pub struct Wrapped<L, A> {
    pub(super) inner: L,
    pub(super) around: A,
}

impl<L: Limiter, A: Around> Limiter for Wrapped<L, A> {
    type Future = WrappedFuture<L::Future, A>;

    fn check(&self, charge: &Charge) -> Self::Future {
        match self.around.open(charge) {
            Begin::Answered(decision) => WrappedFuture::unasked(Some(decision), None),
            Begin::Refused(open) => WrappedFuture::unasked(None, Some(open)),
            Begin::Seen(open) => WrappedFuture::asking(self.inner.check(charge), Some(open)),
            Begin::Unseen => WrappedFuture::asking(self.inner.check(charge), None),
        }
    }

    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        self.around.keyless(why, || self.inner.check_keyless(why))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let settle = |reservation| self.inner.settle(reservation, actual);
        self.around.settle(reservation, actual, settle)
    }

    pass_on!(renew, keys);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let open = match self.around.open_operation(operation, charge) {
            Begin::Answered(decision) => return Some(WrappedFuture::unasked(Some(decision), None)),
            Begin::Refused(open) => return Some(WrappedFuture::unasked(None, Some(open))),
            Begin::Seen(open) => Some(open),
            Begin::Unseen => None,
        };
        Some(WrappedFuture::asking(self.inner.operate(operation, charge)?, open))
    }
}

pin_project! {
    /// The future of [`Wrapped`](crate::limiter::Wrapped).
    pub struct WrappedFuture<C, A: Around> {
        #[pin]
        state: State<C>,
        // `None`: the answer is not seen, or was already seen.
        open: Option<A::Open>,
        is_begun: bool,
    }

    impl<C, A: Around> PinnedDrop for WrappedFuture<C, A> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if *this.is_begun
                && let Some(open) = this.open.take()
            {
                // The limiter refunds its units first.
                this.state.set(State::Unasked { decision: None });
                A::leave(open);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<C> {
        Asking { #[pin] answer: C },
        Unasked { decision: Option<Decision> },
    }
}

impl<C, A: Around> WrappedFuture<C, A> {
    fn asking(answer: C, open: Option<A::Open>) -> Self {
        Self { state: State::Asking { answer }, open, is_begun: false }
    }

    fn unasked(decision: Option<Decision>, open: Option<A::Open>) -> Self {
        Self { state: State::Unasked { decision }, open, is_begun: false }
    }
}

impl<C, A> Future for WrappedFuture<C, A>
where
    C: Future<Output = Result<Decision, Error>>,
    A: Around,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(open) = this.open
            && !mem::replace(this.is_begun, true)
        {
            A::begin(open)?;
        }
        match this.state.project() {
            StateProj::Asking { answer } => {
                let answer = match (answer.poll(cx), this.open.as_mut()) {
                    (Poll::Ready(answer), _) => answer,
                    (Poll::Pending, None) => return Poll::Pending,
                    (Poll::Pending, Some(open)) => match A::wait(open, cx) {
                        Ok(()) => return Poll::Pending,
                        Err(error) => Err(error),
                    },
                };
                Poll::Ready(match this.open.take() {
                    Some(open) => A::close(open, answer),
                    None => answer,
                })
            }
            StateProj::Unasked { decision } => {
                Poll::Ready(Ok(decision.take().expect("polled after it was done")))
            }
        }
    }
}

debug_by_name!([C, A: Around] WrappedFuture<C, A>);
