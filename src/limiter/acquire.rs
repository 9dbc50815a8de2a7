//! Admission, which a layer's request and `acquire` share: check the charge, sleep a reserved wait,
//! check again where nothing can be reserved, and refund the wait when the caller leaves.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use super::Limiter;
use crate::{Charge, Decision, Error, ErrorKind, Outcome, Refusal};

/// The longest jitter, in µs.
const MAX_JITTER: u64 = 1_000;

pin_project! {
    /// The admission of one charge. Its owner passes the limiter to each poll, keeps the decision,
    /// and must `abandon` the admission when dropped.
    pub(crate) struct Admission<C> {
        // None for a charge that does not wait.
        attempts: Option<Attempts>,
        waiter_permit: Option<OwnedSemaphorePermit>,
        // The longest wait that the last check may reserve.
        max_wait: Duration,
        #[pin]
        state: State<C>,
    }
}

/// A charge that may wait, and its checks so far.
struct Attempts {
    charge: Charge,
    since: Instant,
    /// When the last check began: the earliest instant that it can have been decided at.
    last_check: Instant,
    /// Whether it was checked more than once.
    has_retried: bool,
}

pin_project! {
    #[project = StateProj]
    enum State<C> {
        Starting,
        Asking { #[pin] check: C },
        Waiting { #[pin] sleep: Sleep, due: Instant },
        Pausing { #[pin] sleep: Sleep },
        Done,
    }
}

impl<C> Admission<C> {
    /// Checks a charge once, without waiting.
    pub(crate) fn at_once<L: Limiter<Future = C>>(limiter: &L, charge: &Charge) -> Self {
        let max_wait = charge.get_max_wait().unwrap_or_default();
        let state = State::Asking { check: limiter.check(charge) };
        Self { attempts: None, waiter_permit: None, max_wait, state }
    }

    /// Waits up to the `max_wait` of the charge. The first check begins with the first poll.
    pub(crate) fn waiting(charge: Charge, waiter_permit: Option<OwnedSemaphorePermit>) -> Self {
        let since = Instant::now();
        let max_wait = charge.get_max_wait().unwrap_or_default();
        let attempts = Some(Attempts { charge, since, last_check: since, has_retried: false });
        Self { attempts, waiter_permit, max_wait, state: State::Starting }
    }

    /// Refunds a reserved wait that is not over yet.
    pub(crate) fn abandon<L: Limiter>(
        self: Pin<&mut Self>,
        limiter: &L,
        decision: &mut Option<Decision>,
    ) {
        if let StateProj::Waiting { due, .. } = self.project().state.project() {
            let reservation = decision.as_mut().and_then(Decision::take_reservation);
            if let Some(reservation) = reservation.filter(|_| Instant::now() < *due) {
                let _ = limiter.settle(reservation, 0);
            }
        }
    }

    /// Polls with the limiter that it was made with. An admission is stored in `admitted`.
    pub(crate) fn poll<L: Limiter<Future = C>>(
        self: Pin<&mut Self>,
        limiter: &L,
        admitted: &mut Option<Decision>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>>
    where
        C: Future<Output = Result<Decision, Error>>,
    {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Starting => {
                    let attempts =
                        this.attempts.as_mut().expect("only a charge that may wait starts");
                    attempts.since = Instant::now();
                    attempts.last_check = attempts.since;
                    State::Asking { check: limiter.check(&attempts.charge) }
                }
                StateProj::Asking { check } => match ready!(check.poll(cx)) {
                    Ok(mut decision) => match decision.outcome() {
                        Outcome::Wait(wait) if wait > *this.max_wait => {
                            this.state.set(State::Done);
                            *this.waiter_permit = None;
                            if let Some(reservation) = decision.take_reservation() {
                                let _ = limiter.settle(reservation, 0);
                            }
                            return Poll::Ready(Err(Refusal::Undecided(too_long_a_wait())));
                        }
                        Outcome::Wait(wait) => {
                            let since = this
                                .attempts
                                .as_ref()
                                .map_or_else(Instant::now, |attempts| attempts.last_check);
                            *admitted = Some(decision);
                            let due = since.checked_add(wait).unwrap_or(since);
                            State::Waiting { sleep: sleep(wait), due }
                        }
                        Outcome::Retry(pause)
                            if this
                                .attempts
                                .as_ref()
                                .is_some_and(|attempts| attempts.has_time_for(pause)) =>
                        {
                            State::Pausing { sleep: sleep(pause.saturating_add(jitter())) }
                        }
                        outcome => {
                            this.state.set(State::Done);
                            *this.waiter_permit = None;
                            return Poll::Ready(match outcome {
                                Outcome::Allow => {
                                    let waited = this.attempts.as_ref().and_then(Attempts::waited);
                                    *admitted = Some(decision.after(waited.unwrap_or_default()));
                                    Ok(())
                                }
                                _ => Err(Refusal::Denied(decision.denied())),
                            });
                        }
                    },
                    Err(error) => {
                        this.state.set(State::Done);
                        *this.waiter_permit = None;
                        return Poll::Ready(Err(Refusal::Undecided(error)));
                    }
                },
                StateProj::Waiting { sleep, .. } => {
                    ready!(sleep.poll(cx));
                    this.state.set(State::Done);
                    *this.waiter_permit = None;
                    return Poll::Ready(Ok(()));
                }
                StateProj::Pausing { sleep } => {
                    ready!(sleep.poll(cx));
                    let attempts =
                        this.attempts.as_mut().expect("only a charge that may wait pauses");
                    (attempts.has_retried, attempts.last_check) = (true, Instant::now());
                    *this.max_wait = attempts.remaining_wait();
                    let charge = attempts.charge.clone().max_wait(*this.max_wait);
                    State::Asking { check: limiter.check(&charge) }
                }
                StateProj::Done => panic!("polled after it was done"),
            };
            this.state.set(next);
        }
    }
}

/// The error of a limiter that reserves a wait longer than the caller's `max_wait`.
pub(super) fn too_long_a_wait() -> Error {
    let message = "the limiter reserved a longer wait than it was asked for";
    Error::new(ErrorKind::State, message)
}

/// A random delay, so that callers that wait for the same moment do not check at once.
fn jitter() -> Duration {
    Duration::from_micros(fastrand::u64(..=MAX_JITTER))
}

impl Attempts {
    /// How long it has waited, if it was checked again.
    fn waited(&self) -> Option<Duration> {
        self.has_retried.then(|| self.since.elapsed())
    }

    /// What remains of `max_wait`, which began with the first check.
    fn remaining_wait(&self) -> Duration {
        self.charge.get_max_wait().unwrap_or_default().saturating_sub(self.since.elapsed())
    }

    /// Whether another pause fits into the remaining wait.
    fn has_time_for(&self, pause: Duration) -> bool {
        pause <= self.remaining_wait()
    }
}

impl<C> fmt::Debug for Admission<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`LimiterExt::acquire`](crate::LimiterExt::acquire).
    ///
    /// Dropping it before its slot refunds the slot. With Redis this needs a tokio runtime, which
    /// sends the refund.
    #[must_use = "nothing is acquired until it is awaited"]
    pub struct AcquireFuture<'a, L: Limiter> {
        limiter: &'a L,
        decision: Option<Decision>,
        #[pin]
        admission: Admission<L::Future>,
    }

    impl<L: Limiter> PinnedDrop for AcquireFuture<'_, L> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            this.admission.abandon(*this.limiter, this.decision);
        }
    }
}

impl<'a, L: Limiter> AcquireFuture<'a, L> {
    pub(super) fn new(limiter: &'a L, charge: Charge) -> Self {
        let max_wait = charge.get_max_wait().unwrap_or(Duration::MAX);
        let charge = charge.max_wait(max_wait);
        let admission = Admission::waiting(charge, None);
        Self { limiter, decision: None, admission }
    }
}

impl<L: Limiter> Future for AcquireFuture<'_, L> {
    type Output = Result<Decision, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        ready!(this.admission.poll(*this.limiter, this.decision, cx))?;
        Poll::Ready(Ok(this.decision.take().expect("admitted by a decision")))
    }
}

impl<L: Limiter> fmt::Debug for AcquireFuture<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture").field("admission", &self.admission).finish_non_exhaustive()
    }
}
