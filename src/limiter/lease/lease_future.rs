//! The decision of a leased limiter: units of a lease, or the inner limiter's answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use super::leased_key::{KeyAnswer, RefillFailure, WaiterAnswer};
use super::leased_keys::Leases;
use super::refill::Refill;
use super::sweeper;
use crate::core::{Charge, Decision, Error};
use crate::limiter::timeout::after_other_calls;
use crate::limiter::{Limiter, Operation};

pin_project! {
    /// The future of [`Lease`](crate::limiter::Lease).
    ///
    /// If it is dropped while it waits for a refill, it takes nothing, and the units go to the next
    /// caller.
    #[must_use = "nothing is decided until it is awaited"]
    pub struct LeaseFuture<L: Limiter> {
        leases: Arc<Leases<L>>,
        #[pin]
        state: State<L>,
    }

    impl<L: Limiter> PinnedDrop for LeaseFuture<L> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let StateProj::Waiting { receiver, .. } = this.state.project() {
                this.leases.abandon(receiver);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<L: Limiter> {
        Starting { charge: Option<Charge> },
        Waiting { receiver: oneshot::Receiver<WaiterAnswer<L>>, charge: Option<Charge> },
        // Asks the inner limiter. The answer to a charge that might be leased is noted.
        Asking { #[pin] check: L::Future, charge: Option<Charge>, has_waited: bool },
        Operating { #[pin] answer: L::Future, change: Option<(Operation, Charge)>, reset: Option<Reset<L>> },
    }
}

impl<L: Limiter> LeaseFuture<L> {
    pub(super) fn starting(leases: Arc<Leases<L>>, charge: Charge) -> Self {
        Self { leases, state: State::Starting { charge: Some(charge) } }
    }

    /// Asks the inner limiter, even if units are leased.
    pub(super) fn asking(leases: Arc<Leases<L>>, check: L::Future) -> Self {
        Self { leases, state: State::Asking { check, charge: None, has_waited: false } }
    }

    pub(super) fn operating(
        leases: Arc<Leases<L>>,
        answer: L::Future,
        operation: Operation,
        charge: Charge,
    ) -> Self {
        let change = Some((operation, charge));
        Self { leases, state: State::Operating { answer, change, reset: None } }
    }
}

impl<L: Limiter> State<L> {
    /// Asks for this charge alone, perhaps after a wait for a refill.
    fn asking_alone(leases: &Leases<L>, charge: Charge, has_waited: bool) -> Self {
        let check = leases.inner.check(&charge);
        Self::Asking { check, charge: Some(charge), has_waited }
    }
}

impl<L> Future for LeaseFuture<L>
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let leases = &*this.leases;
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Starting { charge } => {
                    let charge = charge.take().expect("polled after it was done");
                    let (asked, order) = leases.ask(&charge);
                    if let Some(order) = order {
                        Refill::spawn(leases, order);
                    }
                    if let KeyAnswer::Granted(grant) = asked {
                        return Poll::Ready(Ok(grant.into_decision(leases.owner)));
                    }
                    sweeper::start(leases);
                    match asked {
                        KeyAnswer::Waits(receiver) => {
                            State::Waiting { receiver, charge: Some(charge) }
                        }
                        _ => State::asking_alone(leases, charge, false),
                    }
                }
                StateProj::Waiting { receiver, charge } => {
                    match ready!(Pin::new(receiver).poll(cx)) {
                        Ok(WaiterAnswer::Granted(grant)) => {
                            return Poll::Ready(Ok(grant.into_decision(leases.owner)));
                        }
                        Ok(WaiterAnswer::Failed(RefillFailure { error, ask_alone_from })) => {
                            let charge = charge.take().expect("asked once");
                            let ends_late =
                                |from| charge.deadline().is_none_or(|deadline| deadline >= from);
                            if !ask_alone_from.is_some_and(ends_late) {
                                return Poll::Ready(Err(error));
                            }
                            State::asking_alone(leases, charge, false)
                        }
                        // An error: the refill ended without an answer.
                        Ok(WaiterAnswer::AskAlone) | Err(_) => {
                            let charge = charge.take().expect("asked once");
                            State::asking_alone(leases, charge, true)
                        }
                    }
                }
                StateProj::Asking { check, charge, has_waited } => {
                    let answer = ready!(check.poll(cx));
                    let Some(charge) = charge.take() else { return Poll::Ready(answer) };
                    return Poll::Ready(match answer {
                        // The refill was answered, and took most of the time.
                        Err(error) if *has_waited => Err(after_other_calls(error, &charge)),
                        Ok(decision) => {
                            leases.note(&charge, &decision);
                            Ok(decision)
                        }
                        error => error,
                    });
                }
                StateProj::Operating { answer, change, reset } => {
                    match change.take() {
                        Some((
                            operation @ (Operation::Reset
                            | Operation::Block(_)
                            | Operation::Pause(_)),
                            charge,
                        )) => {
                            let is_reset = operation == Operation::Reset;
                            *reset = Some(Reset::begin(leases, charge, is_reset));
                        }
                        Some((Operation::Penalize, charge)) => leases.end_key(charge.key()),
                        _ => {}
                    }
                    let answer = ready!(answer.poll(cx));
                    if let Some(mut reset) = reset.take() {
                        reset.is_done = answer.is_ok();
                    }
                    return Poll::Ready(answer);
                }
            };
            this.state.set(next);
        }
    }
}

debug_by_name!([L: Limiter] LeaseFuture<L>);

/// A running reset, block or pause. Nothing is leased until it has ended.
struct Reset<L: Limiter> {
    leases: Arc<Leases<L>>,
    charge: Charge,
    is_done: bool,
}

impl<L: Limiter> Reset<L> {
    fn begin(leases: &Arc<Leases<L>>, charge: Charge, is_reset: bool) -> Self {
        leases.begin_reset(charge.key(), is_reset);
        Self { leases: Arc::clone(leases), charge, is_done: false }
    }
}

impl<L: Limiter> Drop for Reset<L> {
    fn drop(&mut self) {
        self.leases.end_reset(self.charge.key(), self.is_done);
    }
}
