//! Admission, which a layer's request and `acquire` share. It checks the charge, and sleeps a
//! reserved wait. If nothing can be reserved, or the key was paused meanwhile, it checks again.
//! When the caller leaves, it passes the slot on.
//!
//! The path of a caller that leaves while it waits:
//!
//! 1. The drop of its future (`Acquire` below, or `tower/future.rs`) calls `Admission::abandon`,
//!    which settles the reservation with 0 units used.
//! 2. `ConfiguredAlgorithm::settle` finds its place in line, and calls `Turn::leave` of `line.rs`.
//!    The waiters behind move up, so that the last slot of the key becomes spare.
//! 3. The store takes the spare slot back (`SettleUnits`). If it cannot, `line.rs` keeps the slot
//!    until it is due, and the next charge of the key takes it: `take_spare`.

use std::any::type_name;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use super::on_time::MAX_TIMEOUT;
use super::{Limiter, runtime};
use crate::core::decision::Done;
use crate::core::reservation::Reservation;
use crate::core::waiters::{Callers, Waiter};
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome, Refusal};

pub(crate) const DEFAULT_MAX_WAITERS: usize = 1_024;

const MAX_JITTER: u64 = 1_000;

pin_project! {
    /// The admission of one charge. Its owner passes the limiter to each poll, keeps the decision,
    /// and must `abandon` the admission when dropped.
    ///
    /// The state for charges that wait is on the heap: most do not wait, and a future is copied
    /// several times before it is polled.
    pub(crate) struct Admission<C> {
        // `None` for a charge that does not wait.
        attempts: Option<Box<Attempts>>,
        #[pin]
        state: State<C>,
    }
}

struct Attempts {
    charge: Charge,
    max_wait: Duration,
    max_waiters: usize,
    _waiter_permit: Option<OwnedSemaphorePermit>,
    since: Instant,
    /// The instant at which the last check began: the earliest at which it can have been decided.
    last_check: Instant,
    has_retried: bool,
    /// True if it asks after a wait if its key was paused meanwhile.
    looks_again: bool,
    /// True while it asks so, and has its units.
    is_looking: bool,
    /// The place in line while the charge waits.
    waiter: Option<Waiter>,
    /// Its place in the queue while it waits for units which others hold.
    queue: Option<Waiter>,
    /// The last answer, while it is in the queue.
    refusal: Option<Decision>,
    /// Its place among the callers of a limiter without a line, since its first wait.
    caller: Option<Waiter>,
}

pin_project! {
    #[project = StateProj]
    enum State<C> {
        Starting,
        // No other state has a check: two of them would make each future longer.
        Asking { #[pin] check: C },
        Waiting { sleep: Pin<Box<Sleep>>, due: Instant },
        Pausing { sleep: Pin<Box<Sleep>> },
    }
}

impl<C> Admission<C> {
    #[inline]
    pub(crate) fn at_once(check: C) -> Self {
        Self { attempts: None, state: State::Asking { check } }
    }

    /// Waits up to the `max_wait` of the charge. The first check begins with the first poll.
    pub(crate) fn waiting(charge: Charge, waiter_permit: Option<OwnedSemaphorePermit>) -> Self {
        let since = Instant::now();
        let attempts = Attempts {
            max_wait: charge.longest_wait().unwrap_or_default(),
            charge,
            max_waiters: usize::MAX,
            _waiter_permit: waiter_permit,
            since,
            last_check: since,
            has_retried: false,
            looks_again: false,
            is_looking: false,
            waiter: None,
            queue: None,
            refusal: None,
            caller: None,
        };
        Self { attempts: Some(attempts.into()), state: State::Starting }
    }

    /// Asks the limiter after a wait if the key was paused meanwhile, if `looks_again` is true.
    pub(crate) fn looking_again(mut self, looks_again: bool) -> Self {
        if let Some(attempts) = &mut self.attempts {
            attempts.looks_again = looks_again;
        }
        self
    }

    pub(crate) fn take_charge(self: Pin<&mut Self>) -> Option<Charge> {
        self.project().attempts.take().map(|attempts| attempts.charge)
    }

    /// Refunds a reserved wait that is not over yet, and held units. The head of `line.rs` says
    /// what follows.
    pub(crate) fn abandon<L: Limiter>(
        self: Pin<&mut Self>,
        limiter: &L,
        decision: &mut Option<Decision>,
    ) {
        let this = self.project();
        let state = this.state.project();
        let is_looking = this.attempts.as_ref().is_some_and(|one| one.is_looking);
        if let Some(decision) = decision.as_mut().filter(|_| is_looking) {
            refund(limiter, decision);
        }
        if let StateProj::Waiting { due, .. } = state {
            let due = this.attempts.as_ref().and_then(|one| one.due(None)).unwrap_or(*due);
            let reservation = decision.as_mut().and_then(Decision::take_reservation);
            // Held units must be settled even if their slot has passed.
            let is_of_use = |one: &Reservation| one.is_held() || Instant::now() < due;
            if let Some(reservation) = reservation.filter(is_of_use) {
                let _ = limiter.settle(reservation, 0);
            }
        }
    }

    /// Polls the admission. `limiter` must be the one it was made with. An admission is stored in
    /// `admitted`. After `Ready` it is not polled again.
    // Not only a hint: a call more costs each request 10 ns.
    #[inline(always)]
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
        let answer = loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { check } => {
                    match (ready!(check.poll(cx)), &mut *this.attempts) {
                        (answer, Some(attempts)) if attempts.is_looking => {
                            attempts.is_looking = false;
                            if !answer.is_ok_and(|seen| seen.paused_for().is_some()) {
                                break Ok(());
                            }
                            let check = ask_again(attempts, limiter, admitted);
                            ControlFlow::Continue(State::Asking { check })
                        }
                        (Ok(decision), attempts) if decision.outcome() == Outcome::Allow => {
                            let decision = admitted.insert(decision);
                            if let Some(attempts) = attempts {
                                attempts.report_to(decision);
                            }
                            break Ok(());
                        }
                        (Ok(decision), attempts) => {
                            not_allowed(attempts, limiter, decision, admitted)
                        }
                        (Err(error), _) => break Err(Refusal::Undecided(error)),
                    }
                }
                waiting => ready!(poll_wait(waiting, this.attempts, limiter, admitted, cx)),
            };
            match next {
                ControlFlow::Continue(next) => this.state.set(next),
                ControlFlow::Break(answer) => break answer,
            }
        };
        if let Some(attempts) = this.attempts {
            // It waits no longer, even if this future is dropped later.
            (attempts.queue, attempts.caller) = (None, None);
        }
        Poll::Ready(answer)
    }
}

type AfterPoll<C> = ControlFlow<Result<(), Refusal>, State<C>>;

#[inline(never)]
fn not_allowed<L: Limiter>(
    attempts: &mut Option<Box<Attempts>>,
    limiter: &L,
    mut decision: Decision,
    admitted: &mut Option<Decision>,
) -> AfterPoll<L::Future> {
    let asked = attempts.as_deref();
    let refused = match decision.outcome() {
        Outcome::Wait(wait) => {
            // A charge that may not wait has no attempts.
            let max_wait = asked.map_or(Duration::ZERO, |one| one.max_wait);
            let since = asked.map_or_else(Instant::now, |one| one.last_check);
            let sleep = match wait > max_wait {
                true => Err(too_long_a_wait()),
                false => boxed_sleep(wait),
            };
            let due = since + wait.min(MAX_TIMEOUT);
            match sleep {
                Ok(sleep) if !begin_wait::<L>(attempts, &mut decision) => {
                    *admitted = Some(decision);
                    return ControlFlow::Continue(State::Waiting { sleep, due });
                }
                sleep => {
                    refund(limiter, &mut decision);
                    match sleep {
                        Ok(_) => Refusal::Denied(decision.without_wait()),
                        Err(error) => Refusal::Undecided(error),
                    }
                }
            }
        }
        Outcome::Retry(pause) if asked.is_some_and(|asked| asked.has_time_for(pause)) => {
            match boxed_sleep(pause.saturating_add(jitter())) {
                Ok(sleep) if !begin_wait::<L>(attempts, &mut decision) => {
                    if let Some(attempts) = attempts {
                        attempts.refusal = attempts.queue.is_some().then_some(decision);
                    }
                    return ControlFlow::Continue(State::Pausing { sleep });
                }
                Ok(_) => Refusal::Denied(decision.without_retry()),
                Err(error) => Refusal::Undecided(error),
            }
        }
        _ => Refusal::Denied(decision.without_retry()),
    };
    ControlFlow::Break(Err(refused))
}

#[inline(never)]
fn poll_wait<L: Limiter>(
    state: StateProj<'_, L::Future>,
    attempts: &mut Option<Box<Attempts>>,
    limiter: &L,
    admitted: &mut Option<Decision>,
    cx: &mut Context<'_>,
) -> Poll<AfterPoll<L::Future>> {
    let done = Poll::Ready(ControlFlow::Break(Ok(())));
    // A limiter may ask a charge to wait for 0 s that may not wait.
    let Some(attempts) = attempts else { return done };
    let check = match state {
        StateProj::Starting => {
            attempts.begin();
            limiter.check(&attempts.charge)
        }
        StateProj::Waiting { sleep, .. } => {
            let due = attempts.due(Some(cx.waker()));
            if let Some(due) = due.filter(|due| *due != sleep.deadline()) {
                sleep.as_mut().reset(due);
            }
            if due.is_none_or(|due| due > Instant::now()) {
                ready!(sleep.as_mut().poll(cx));
            }
            let went = attempts.waiter.take().and_then(Waiter::go);
            if let Some((_, true)) = went {
                ask_again(attempts, limiter, admitted)
            } else {
                if let (Some(decision), Some((at, _))) = (admitted.as_mut(), went) {
                    decision.move_up_to(at);
                }
                if !attempts.looks_again {
                    return done;
                }
                attempts.is_looking = true;
                limiter.check(&attempts.charge.clone().peek())
            }
        }
        StateProj::Pausing { sleep } => {
            let at = attempts.asks_at(cx.waker());
            if let Some(at) = at.filter(|at| *at != sleep.deadline()) {
                sleep.as_mut().reset(at);
            }
            if at.is_none_or(|at| at > Instant::now()) {
                ready!(sleep.as_mut().poll(cx));
            }
            if !attempts.queue.as_ref().is_none_or(Waiter::asks)
                && let Some(refusal) = attempts.refusal.take()
            {
                let refusal = Refusal::Denied(refusal.without_retry());
                return Poll::Ready(ControlFlow::Break(Err(refusal)));
            }
            limiter.check(&attempts.begin_again())
        }
        StateProj::Asking { .. } => unreachable!("it is polled by its owner"),
    };
    Poll::Ready(ControlFlow::Continue(State::Asking { check }))
}

/// Begins the wait of a request, in the line of its decision. Returns true if too many wait.
fn begin_wait<L>(attempts: &mut Option<Box<Attempts>>, decision: &mut Decision) -> bool {
    let Some(attempts) = attempts else { return false };
    let mut number = 0;
    let is_retry = matches!(decision.outcome(), Outcome::Retry(_));
    let waiters = decision.take_waiters();
    let last = attempts.refusal.as_ref();
    if is_retry && last.is_some_and(|last| last.origin() == decision.origin()) {
        // It keeps its place, unless a fallback answers now, or no longer does.
        return false;
    }
    (attempts.queue, attempts.refusal) = (None, None);
    if let Some(waiters) = waiters {
        let (waiter, waiting) = Waiter::new(waiters);
        number = waiting;
        *(if is_retry { &mut attempts.queue } else { &mut attempts.waiter }) = Some(waiter);
    }
    // A layer counts its own requests.
    if number == 0 && attempts.max_waiters < usize::MAX && attempts.caller.is_none() {
        let (caller, waiting) = Waiter::new(Arc::new(Callers(type_name::<L>())));
        (attempts.caller, number) = (Some(caller), waiting);
    }
    number > attempts.max_waiters
}

/// Gives back the slot of a request whose key was paused meanwhile, and checks it again.
fn ask_again<L: Limiter>(
    attempts: &mut Attempts,
    limiter: &L,
    admitted: &mut Option<Decision>,
) -> L::Future {
    if let Some(mut decision) = admitted.take() {
        refund(limiter, &mut decision);
    }
    limiter.check(&attempts.begin_again())
}

fn boxed_sleep(wait: Duration) -> Result<Pin<Box<Sleep>>, Error> {
    runtime::current().map(|_| Box::pin(sleep(wait)))
}

fn refund<L: Limiter>(limiter: &L, decision: &mut Decision) {
    if let Some(reservation) = decision.take_reservation() {
        let _ = limiter.settle(reservation, 0);
    }
}

/// Makes the error for a limiter that reserves a wait longer than the caller's `max_wait`.
pub(crate) fn too_long_a_wait() -> Error {
    let message = "the limiter reserved a longer wait than the caller allows";
    Error::new(ErrorKind::State, message)
}

/// Returns a random delay, so that callers that wait for the same moment do not check at the same
/// time.
fn jitter() -> Duration {
    Duration::from_micros(fastrand::u64(..=MAX_JITTER))
}

impl Attempts {
    fn begin(&mut self) {
        self.since = Instant::now();
        self.last_check = self.since;
    }

    fn begin_again(&mut self) -> Charge {
        (self.has_retried, self.last_check) = (true, Instant::now());
        self.max_wait = self.remaining_wait();
        let charge = self.charge.clone().with_retried_for(self.since.elapsed());
        charge.max_wait(self.max_wait)
    }

    fn report_to(&self, decision: &mut Decision) {
        if self.has_retried {
            decision.set_retried_for(self.since.elapsed());
        }
    }

    /// Returns the part of `max_wait` that remains. It began with the first check.
    fn remaining_wait(&self) -> Duration {
        self.charge.longest_wait().unwrap_or_default().saturating_sub(self.since.elapsed())
    }

    /// Returns the instant at which it may go, if that may change.
    fn due(&self, waker: Option<&Waker>) -> Option<Instant> {
        self.waiter.as_ref()?.due(waker).map(Instant::from_std)
    }

    /// Returns the instant at which it asks again, if it waits in a queue: at the latest at the end
    /// of its longest wait.
    fn asks_at(&self, waker: &Waker) -> Option<Instant> {
        let due = self.queue.as_ref()?.due(Some(waker)).map(Instant::from_std)?;
        let longest = self.charge.longest_wait().unwrap_or_default().min(MAX_TIMEOUT);
        Some(due.min(self.since + longest))
    }

    /// Returns true if another pause fits into the remaining wait. A pause of 0 needs time too:
    /// otherwise a limiter that always answers it would be asked for ever.
    fn has_time_for(&self, pause: Duration) -> bool {
        pause.max(Duration::from_nanos(1)) <= self.remaining_wait()
    }
}

debug_by_name!([C] Admission<C>);

pin_project! {
    /// The future of [`LimiterExt::acquire`](crate::LimiterExt::acquire).
    ///
    /// If it is dropped before its slot, the slot goes to the callers behind, or is refunded.
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
    pub(crate) fn new(limiter: &'a L, charge: Charge) -> Self {
        let max_wait = charge.longest_wait().unwrap_or(Duration::MAX);
        let charge = charge.max_wait(max_wait);
        let admission = Admission::waiting(charge, None);
        Self { limiter, decision: None, admission }.max_waiters(DEFAULT_MAX_WAITERS)
    }

    /// Sets how many callers may wait for the limiter at once, this one included. One more gives
    /// its slot back, and is refused. It may still be admitted at once. Default: 1,024.
    ///
    /// Callers of Redisson, or of a limiter of your own, are counted by the type of the limiter:
    /// those of all limiters of one type count together.
    pub fn max_waiters(mut self, callers: usize) -> Self {
        if let Some(attempts) = &mut self.admission.attempts {
            attempts.max_waiters = callers;
        }
        self
    }
}

impl<L: Limiter> Future for AcquireFuture<'_, L> {
    type Output = Result<Done, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        ready!(this.admission.poll(*this.limiter, this.decision, cx))?;
        Poll::Ready(Ok(Done(this.decision.take().expect("admitted by a decision"))))
    }
}

debug_by_name!(['a, L: Limiter] AcquireFuture<'a, L>: admission);
