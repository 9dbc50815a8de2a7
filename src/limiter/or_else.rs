//! Fallbacks, which decide if a limiter cannot.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::timeout::after_other_calls;
use super::{Limiter, Operation};
use crate::core::decision::Origin;
use crate::core::reservation::Reservation;
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome};
use crate::observe::FallbackWatch;

/// A fallback that admits while the store is away: there is no limit until the store is back.
///
/// It answers only errors of kind [`Infrastructure`](crate::ErrorKind::Infrastructure), which
/// neither the content of a request nor the load of this process alone can cause. Load that makes
/// Redis itself silent does turn the limit off. If that matters, use a [`Memory`](crate::Memory)
/// with a share as the fallback.
///
/// With [`or_else_if`](crate::LimiterExt::or_else_if), your condition replaces this rule. Requests
/// or load can cause the kinds `Request`, `State`, `Saturation` and `Capacity`: if it covers one of
/// these, a caller can turn off the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailOpen;

/// Decides in place of a limiter that failed: [`FailOpen`], and every limiter. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a fallback",
    note = "a fallback is `FailOpen`, or a limiter such as `Memory::new(\"share\", algorithm)`"
)]
pub trait Fallback: sealed::Sealed {
    /// The future of the decision.
    type Future: Future<Output = Result<Decision, Error>>;

    #[doc(hidden)]
    type Limiter: Limiter<Future = Self::Future>;

    #[doc(hidden)]
    fn stands_in(error: &Error) -> bool;

    #[doc(hidden)]
    fn limiter(&self) -> &Self::Limiter;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for FailOpen {}
impl Fallback for FailOpen {
    type Future = Ready<Result<Decision, Error>>;
    type Limiter = Admits;

    fn stands_in(error: &Error) -> bool {
        error.kind().may_fail_open()
    }

    fn limiter(&self) -> &Admits {
        &Admits
    }
}

/// Admits every charge, and counts nothing.
#[derive(Clone, Copy, Debug)]
pub struct Admits;

impl Limiter for Admits {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, _: &Charge) -> Self::Future {
        ready(Ok(Decision::new(Outcome::Allow).with_origin(Origin::FailOpen)))
    }
}

impl<L: Limiter> sealed::Sealed for L {}
impl<L: Limiter> Fallback for L {
    type Future = L::Future;
    type Limiter = L;

    fn stands_in(error: &Error) -> bool {
        error.kind().may_fall_back()
    }

    fn limiter(&self) -> &L {
        self
    }
}

/// A limiter with a fallback. Made by [`LimiterExt::or_else`](crate::LimiterExt::or_else) and
/// [`or_else_if`](crate::LimiterExt::or_else_if).
///
/// A decision of the fallback has the limiter's error in [`Decision::fallback_cause`]. If the
/// fallback cannot decide either, the caller gets the error of the fallback.
///
/// An operation, such as [`reset`](crate::LimiterExt::reset), goes to the limiter, not to its
/// fallback.
#[derive(Clone, Debug)]
pub struct OrElse<L, F> {
    inner: L,
    standby: Arc<Standby<F>>,
}

/// A fallback, the condition for its answers, and the watch that reports them.
struct Standby<F> {
    fallback: F,
    condition: Box<dyn Fn(&Error) -> bool + Send + Sync>,
    watch: FallbackWatch,
}

debug_by_name!([F: std::fmt::Debug] Standby<F>: fallback);

impl<L, F> OrElse<L, F> {
    #[track_caller]
    pub(super) fn new(
        inner: L,
        condition: impl Fn(&Error) -> bool + Send + Sync + 'static,
        fallback: F,
    ) -> Self
    where
        L: Limiter,
        F: Fallback,
    {
        if let (Some(keys), Some(others)) = (inner.keys(), fallback.limiter().keys()) {
            assert!(
                keys == others,
                "the charges have {keys} keys, and the fallback takes {others}: \
                 write `AllInTurn::of_parts` of {keys} limiters as the fallback",
            );
        }
        let (condition, watch) = (Box::new(condition), FallbackWatch::default());
        Self { inner, standby: Arc::new(Standby { fallback, condition, watch }) }
    }
}

impl<L, F> Limiter for OrElse<L, F>
where
    L: Limiter,
    F: Fallback,
{
    type Future = OrElseFuture<L::Future, F>;

    fn check(&self, charge: &Charge) -> Self::Future {
        OrElseFuture {
            asked: Some((charge.clone(), Arc::clone(&self.standby))),
            state: State::Asking { check: self.inner.check(charge) },
        }
    }

    pass_on!(check_keyless, keys);

    /// Settles with the limiter that made the reservation, which may be the fallback.
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let settled = self.inner.settle(reservation, actual);
        settled.or_else(|reservation| self.standby.fallback.limiter().settle(reservation, actual))
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        let renewal = self.inner.renew(reservation);
        renewal.or_else(|| self.standby.fallback.limiter().renew(reservation))
    }

    /// Operates on the inner limiter: the fallback has separate counts.
    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let state = State::Asking { check: self.inner.operate(operation, charge)? };
        Some(OrElseFuture { asked: None, state })
    }
}

pin_project! {
    /// The future of [`OrElse`].
    pub struct OrElseFuture<C, F: Fallback> {
        // The charge for the fallback, if it may answer.
        asked: Option<(Charge, Arc<Standby<F>>)>,
        #[pin]
        state: State<C, F::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<C, A> {
        Asking { #[pin] check: C },
        // The error of the limiter, for which the fallback answers.
        FallingBack { #[pin] answer: A, error: Option<Error> },
    }
}

impl<C, F> Future for OrElseFuture<C, F>
where
    C: Future<Output = Result<Decision, Error>>,
    F: Fallback,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { check } => {
                    let error = match ready!(check.poll(cx)) {
                        Ok(decision) => {
                            if let Some((_, standby)) = this.asked {
                                standby.watch.decided();
                            }
                            return Poll::Ready(Ok(decision));
                        }
                        Err(error) => error,
                    };
                    match this.asked {
                        Some((charge, standby)) if (standby.condition)(&error) => {
                            let answer = standby.fallback.limiter().check(charge);
                            State::FallingBack { answer, error: Some(error) }
                        }
                        _ => return Poll::Ready(Err(error)),
                    }
                }
                StateProj::FallingBack { answer, error } => {
                    let answer = ready!(answer.poll(cx));
                    let error = error.take().expect("polled after it was done");
                    let decision = match (answer, &this.asked) {
                        (Ok(decision), _) => decision,
                        // No store is at fault if load took the time of the fallback.
                        (Err(last), Some((charge, _)))
                            if error.kind() != ErrorKind::Infrastructure =>
                        {
                            return Poll::Ready(Err(after_other_calls(last, charge)));
                        }
                        (Err(last), _) => return Poll::Ready(Err(last)),
                    };
                    if let Some((_, standby)) = this.asked {
                        standby.watch.answered(&decision, &error);
                    }
                    return Poll::Ready(Ok(decision.with_fallback_cause(error)));
                }
            };
            this.state.set(next);
        }
    }
}

debug_by_name!([C, F: Fallback] OrElseFuture<C, F>);
