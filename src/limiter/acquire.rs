//! Admission, the part of the story that a layer's request and a worker share: ask, sleep what is
//! booked, ask again where nothing can be booked, and give the slot back if nobody is left to use it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use super::Limiter;
use crate::{Charge, Decision, Outcome, Refusal};

/// A way to a limiter that a future can own: a borrow, or a share of what holds it.
pub(crate) trait Reach {
    type Limiter: Limiter;
    fn limiter(&self) -> &Self::Limiter;
}

impl<L: Limiter> Reach for &L {
    type Limiter = L;
    fn limiter(&self) -> &L {
        self
    }
}

type Check<G> = <<G as Reach>::Limiter as Limiter>::Future;

pin_project! {
    /// One charge on its way through the gate.
    pub(crate) struct Admission<G: Reach> {
        gate: G,
        // For asking again, and as the earliest instant that the decision can have been made at.
        asked: Option<Asked>,
        place: Option<OwnedSemaphorePermit>,
        #[pin]
        state: State<Check<G>>,
    }

    impl<G: Reach> PinnedDrop for Admission<G> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let StateProj::Waiting { due, decision, .. } = this.state.project() {
                let booking = decision.as_mut().and_then(Decision::booking);
                if let Some(booking) = booking.filter(|_| Instant::now() < *due) {
                    this.gate.limiter().refund(booking);
                }
            }
        }
    }
}

/// The charge of somebody who would wait, and since when.
struct Asked {
    charge: Charge,
    since: Instant,
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Asking { #[pin] check: F },
        Waiting { #[pin] sleep: Sleep, due: Instant, decision: Option<Decision> },
        Pausing { #[pin] sleep: Sleep },
        Done,
    }
}

impl<G: Reach> Admission<G> {
    /// Asks once, for somebody who does not wait.
    pub(crate) fn at_once(gate: G, charge: &Charge) -> Self {
        let state = State::Asking { check: gate.limiter().check(charge) };
        Self { gate, asked: None, place: None, state }
    }

    /// Asks for somebody who would wait as long as the charge says, in `place`.
    pub(crate) fn patient(gate: G, charge: Charge, place: Option<OwnedSemaphorePermit>) -> Self {
        let since = Instant::now();
        let state = State::Asking { check: gate.limiter().check(&charge) };
        Self { gate, asked: Some(Asked { charge, since }), place, state }
    }
}

impl Asked {
    /// Whether patience, which began with the first question, lasts for another pause.
    fn allows(&self, pause: Duration) -> bool {
        let patience = self.charge.patience().unwrap_or_default();
        self.since.elapsed().saturating_add(pause) <= patience
    }
}

impl<G: Reach> Future for Admission<G> {
    type Output = Result<Decision, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { check } => match ready!(check.poll(cx)) {
                    Ok(decision) => match decision.outcome() {
                        Outcome::Wait(wait) => {
                            let since = this.asked.as_ref().map_or_else(Instant::now, |a| a.since);
                            State::Waiting {
                                sleep: sleep(wait),
                                due: since.checked_add(wait).unwrap_or(since),
                                decision: Some(decision),
                            }
                        }
                        Outcome::Again(pause)
                            if this.asked.as_ref().is_some_and(|a| a.allows(pause)) =>
                        {
                            State::Pausing { sleep: sleep(pause) }
                        }
                        outcome => {
                            this.state.set(State::Done);
                            *this.place = None;
                            return Poll::Ready(match outcome {
                                Outcome::Allow => Ok(decision),
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
                StateProj::Waiting { sleep, decision, .. } => {
                    ready!(sleep.poll(cx));
                    let decision = decision.take().expect("decided before it waited");
                    this.state.set(State::Done);
                    *this.place = None;
                    return Poll::Ready(Ok(decision));
                }
                StateProj::Pausing { sleep } => {
                    ready!(sleep.poll(cx));
                    let asked = this.asked.as_ref().expect("only the patient pause");
                    State::Asking { check: this.gate.limiter().check(&asked.charge) }
                }
                StateProj::Done => panic!("polled after it was done"),
            };
            this.state.set(next);
        }
    }
}

impl<G: Reach> fmt::Debug for Admission<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`LimiterExt::acquire`](crate::LimiterExt::acquire).
    #[derive(Debug)]
    #[must_use = "nothing is acquired until it is awaited"]
    pub struct Acquire<'a, L: Limiter> {
        #[pin]
        admission: Admission<&'a L>,
    }
}

impl<'a, L: Limiter> Acquire<'a, L> {
    pub(super) fn new(limiter: &'a L, charge: Charge) -> Self {
        let patience = charge.patience().unwrap_or(Duration::MAX);
        let charge = charge.max_wait(patience);
        Self { admission: Admission::patient(limiter, charge, None) }
    }
}

impl<L: Limiter> Future for Acquire<'_, L> {
    type Output = Result<Decision, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().admission.poll(cx)
    }
}
