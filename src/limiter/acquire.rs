//! Admission, the part of the story that a layer's request and a worker share: ask, sleep what is
//! reserved, ask again where nothing can be reserved, and give the slot back if nobody
//! is left to use it.

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
const JITTER: u64 = 1_000;

pin_project! {
    /// One charge on its way through the gate. Its owner lends it the limiter and keeps the
    /// decision, and must `abandon` it when dropped.
    pub(crate) struct Admission<C> {
        // For asking again, and as the earliest instant that the decision can have been made at.
        asked: Option<Asked>,
        place: Option<OwnedSemaphorePermit>,
        // The longest wait that the last check may reserve.
        max_wait: Duration,
        #[pin]
        state: State<C>,
    }
}

/// The charge of somebody who would wait, and since when.
struct Asked {
    charge: Charge,
    since: Instant,
    /// When it was asked last.
    last: Instant,
    /// Whether it was asked for more than once.
    again: bool,
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
    /// Asks once, for somebody who does not wait.
    pub(crate) fn at_once<L: Limiter<Future = C>>(limiter: &L, charge: &Charge) -> Self {
        let max_wait = charge.get_max_wait().unwrap_or_default();
        let state = State::Asking { check: limiter.check(charge) };
        Self { asked: None, place: None, max_wait, state }
    }

    /// Waits for as long as the charge says, in `place`. It asks when it is first polled.
    pub(crate) fn patient(charge: Charge, place: Option<OwnedSemaphorePermit>) -> Self {
        let since = Instant::now();
        let max_wait = charge.get_max_wait().unwrap_or_default();
        let asked = Some(Asked { charge, since, last: since, again: false });
        Self { asked, place, max_wait, state: State::Starting }
    }

    /// Gives the slot back if it was reserved and has not come yet.
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

    /// Goes on, by the limiter that it was made with; what admits is left in `slot`.
    pub(crate) fn poll<L: Limiter<Future = C>>(
        self: Pin<&mut Self>,
        limiter: &L,
        slot: &mut Option<Decision>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>>
    where
        C: Future<Output = Result<Decision, Error>>,
    {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Starting => {
                    let asked = this.asked.as_mut().expect("only the patient start");
                    asked.since = Instant::now();
                    asked.last = asked.since;
                    State::Asking { check: limiter.check(&asked.charge) }
                }
                StateProj::Asking { check } => match ready!(check.poll(cx)) {
                    Ok(mut decision) => match decision.outcome() {
                        Outcome::Wait(wait) if wait > *this.max_wait => {
                            this.state.set(State::Done);
                            *this.place = None;
                            if let Some(reservation) = decision.take_reservation() {
                                let _ = limiter.settle(reservation, 0);
                            }
                            return Poll::Ready(Err(Refusal::Undecided(too_long_a_wait())));
                        }
                        Outcome::Wait(wait) => {
                            let since = this.asked.as_ref().map_or_else(Instant::now, |a| a.last);
                            *slot = Some(decision);
                            let due = since.checked_add(wait).unwrap_or(since);
                            State::Waiting { sleep: sleep(wait), due }
                        }
                        Outcome::Retry(pause)
                            if this.asked.as_ref().is_some_and(|a| a.allows(pause)) =>
                        {
                            State::Pausing { sleep: sleep(pause.saturating_add(jitter())) }
                        }
                        outcome => {
                            this.state.set(State::Done);
                            *this.place = None;
                            return Poll::Ready(match outcome {
                                Outcome::Allow => {
                                    let paused = this.asked.as_ref().and_then(Asked::paused);
                                    *slot = Some(decision.after(paused.unwrap_or_default()));
                                    Ok(())
                                }
                                _ => Err(Refusal::Denied(decision.denied())),
                            });
                        }
                    },
                    Err(error) => {
                        this.state.set(State::Done);
                        *this.place = None;
                        return Poll::Ready(Err(Refusal::Undecided(error)));
                    }
                },
                StateProj::Waiting { sleep, .. } => {
                    ready!(sleep.poll(cx));
                    this.state.set(State::Done);
                    *this.place = None;
                    return Poll::Ready(Ok(()));
                }
                StateProj::Pausing { sleep } => {
                    ready!(sleep.poll(cx));
                    let asked = this.asked.as_mut().expect("only the patient pause");
                    (asked.again, asked.last) = (true, Instant::now());
                    *this.max_wait = asked.left();
                    let charge = asked.charge.clone().max_wait(*this.max_wait);
                    State::Asking { check: limiter.check(&charge) }
                }
                StateProj::Done => panic!("polled after it was done"),
            };
            this.state.set(next);
        }
    }
}

/// The error of a limiter that reserves a wait which nobody would sleep.
pub(super) fn too_long_a_wait() -> Error {
    let message = "the limiter reserved a longer wait than it was asked for";
    Error::new(ErrorKind::State, message)
}

/// So that those who wait for the same moment do not ask in the same one.
fn jitter() -> Duration {
    Duration::from_micros(fastrand::u64(..=JITTER))
}

impl Asked {
    /// How long it paused, if it did.
    fn paused(&self) -> Option<Duration> {
        self.again.then(|| self.since.elapsed())
    }

    /// What is left of patience, which began with the first question.
    fn left(&self) -> Duration {
        self.charge.get_max_wait().unwrap_or_default().saturating_sub(self.since.elapsed())
    }

    /// Whether patience lasts for another pause.
    fn allows(&self, pause: Duration) -> bool {
        pause <= self.left()
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
    /// Dropping it before its slot gives that back. To Redis only inside a tokio runtime, which
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
        let patience = charge.get_max_wait().unwrap_or(Duration::MAX);
        let charge = charge.max_wait(patience);
        let admission = Admission::patient(charge, None);
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
