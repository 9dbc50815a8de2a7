//! The units that a settlement gave back, or could not take.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::core::sync::{Mutex, lock};
use crate::core::{Error, ErrorKind};

/// The result of a settlement, as [`Settled`]: a future that need not be awaited.
///
/// The settlement continues without it. If units cannot be given back, they stay taken until the
/// limit forgets them. If a slot goes to the next charge of this process, its units count as given
/// back.
///
/// # Errors
///
/// If the store could not be reached, or did not answer in time.
pub struct Settlement(State);

/// What a settlement did. If several limiters share a reservation, each number is the largest of
/// theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// The units that were given back: 0 if all were used, or if they could not be given back.
    pub given_back: u64,
    /// The units that were used beyond the charge, and that the limit could not take. A bucket
    /// takes all that it may owe, by its [`max_debt`](crate::algorithm::TokenBucket::max_debt). A
    /// window, a log or a counter takes at most its limit.
    pub not_taken: u64,
}

impl Settled {
    /// A settlement that gave back `units`.
    #[must_use]
    pub const fn gave_back(units: u64) -> Self {
        Self { given_back: units, not_taken: 0 }
    }

    /// A settlement of a use beyond the charge, of which these units could not be taken.
    #[must_use]
    pub const fn not_taken(units: u64) -> Self {
        Self { given_back: 0, not_taken: units }
    }

    /// Converts the units given back, or below 0 those that could not be taken.
    pub(crate) fn of(units: i64) -> Self {
        Self { given_back: units.max(0).unsigned_abs(), not_taken: units.min(0).unsigned_abs() }
    }

    fn most(self, other: Self) -> Self {
        Self {
            given_back: self.given_back.max(other.given_back),
            not_taken: self.not_taken.max(other.not_taken),
        }
    }
}

/// A renewal of a [hold](crate::Limiter::renew): a future of true if the units were still held. It
/// does nothing until it is polled.
#[must_use = "nothing is renewed until it is awaited"]
pub struct Renewal {
    max_hold: Duration,
    /// When it shall run, by tokio's clock. `None`: a third of the hold from now.
    due: Option<Instant>,
    renewed: Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>,
}

impl Renewal {
    /// A renewal of units that are held for this time at least, for limiters of your own.
    pub fn new(
        max_hold: Duration,
        renewed: impl Future<Output = Result<bool, Error>> + Send + 'static,
    ) -> Self {
        Self { max_hold, due: None, renewed: Box::pin(renewed) }
    }

    pub(crate) fn due_at(self, due: Instant) -> Self {
        Self { due: Some(due), ..self }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The shortest time for which the units are held without another renewal.
    #[must_use]
    pub fn max_hold(&self) -> Duration {
        self.max_hold
    }
}

impl Future for Renewal {
    type Output = Result<bool, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.renewed.as_mut().poll(cx)
    }
}

debug_by_name!([] Renewal: max_hold);

enum State {
    Settled(Result<Settled, Error>),
    Settling(Arc<Mutex<Settling>>),
}

type Observer = Box<dyn FnOnce(&Result<Settled, Error>) + Send>;

/// The state of a settlement that runs or has just ended.
#[derive(Default)]
struct Settling {
    result: Option<Result<Settled, Error>>,
    waker: Option<Waker>,
    observers: Vec<Observer>,
}

impl Settlement {
    /// A finished settlement, which gave back `units`.
    #[must_use]
    pub fn gave_back(units: u64) -> Self {
        Self(State::Settled(Ok(Settled::gave_back(units))))
    }

    /// A finished settlement, in which `units` beyond the charge could not be taken.
    #[must_use]
    pub fn not_taken(units: u64) -> Self {
        Self(State::Settled(Ok(Settled::not_taken(units))))
    }

    /// Begins a settlement whose store answers later, for limiters of your own. The sender ends it,
    /// from any task or thread. A limiter whose store answers at once returns
    /// `Settlement::from(Ok(settled))`.
    ///
    /// [Limiters of your own][page] has a limiter that settles so.
    ///
    /// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/limiters_of_your_own/
    pub fn begin() -> (SettlementSender, Self) {
        let settling = Arc::default();
        (SettlementSender(Arc::clone(&settling)), Self(State::Settling(settling)))
    }

    /// The same, with another result.
    pub(crate) fn map(
        mut self,
        change: impl FnOnce(Result<Settled, Error>) -> Result<Settled, Error> + Send + 'static,
    ) -> Self {
        let (sender, settlement) = Self::begin();
        self.observe(move |result| sender.end(change(result.clone())));
        settlement
    }

    pub(crate) fn all(settlements: impl IntoIterator<Item = Self>) -> Self {
        let (sender, all) = Self::begin();
        let joined = Arc::new(Mutex::new(JoinedSettlement { all: Ok(Settled::default()), sender }));
        for mut settlement in settlements {
            let joined = Arc::clone(&joined);
            settlement.observe(move |result| lock(&joined).add(result));
        }
        // Each running settlement holds it: the last one to end drops it.
        drop(joined);
        all
    }

    /// Calls `observer` with the result when it is known, even if this is not awaited.
    pub(crate) fn observe(
        &mut self,
        observer: impl FnOnce(&Result<Settled, Error>) + Send + 'static,
    ) {
        let settling = match &self.0 {
            State::Settled(result) => return observer(result),
            State::Settling(settling) => settling,
        };
        let mut settling = lock(settling);
        match settling.result.clone() {
            None => settling.observers.push(Box::new(observer)),
            Some(result) => {
                drop(settling);
                observer(&result);
            }
        }
    }
}

impl From<Result<Settled, Error>> for Settlement {
    fn from(result: Result<Settled, Error>) -> Self {
        Self(State::Settled(result))
    }
}

impl Future for Settlement {
    type Output = Result<Settled, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let settling = match &self.0 {
            State::Settled(result) => return Poll::Ready(result.clone()),
            State::Settling(settling) => settling,
        };
        // Wakers are foreign code, so they are cloned and dropped without the lock.
        let waker = cx.waker().clone();
        let mut settling = lock(settling);
        if let Some(result) = settling.result.clone() {
            return Poll::Ready(result);
        }
        let former = settling.waker.replace(waker);
        drop(settling);
        drop(former);
        Poll::Pending
    }
}

debug_by_name!([] Settlement);

/// Ends a [`Settlement`]. If it is dropped before, the settlement ends with an error of kind
/// [`State`](ErrorKind::State).
#[must_use = "a settlement whose sender is dropped ends with an error"]
pub struct SettlementSender(Arc<Mutex<Settling>>);

debug_by_name!([] SettlementSender);

impl SettlementSender {
    /// Ends the settlement with its result.
    pub fn end(self, result: Result<Settled, Error>) {
        self.finish(result);
    }

    fn finish(&self, result: Result<Settled, Error>) {
        let mut settling = lock(&self.0);
        settling.result = Some(result.clone());
        let (waker, observers) = (settling.waker.take(), mem::take(&mut settling.observers));
        drop(settling);
        // Wakes first, since an observer may panic: it calls the application's recorder.
        waker.into_iter().for_each(Waker::wake);
        observers.into_iter().for_each(|observer| observer(&result));
    }
}

impl Drop for SettlementSender {
    fn drop(&mut self) {
        let has_ended = lock(&self.0).result.is_some();
        if !has_ended {
            let message = "no answer in time says what was given back";
            self.finish(Err(Error::new(ErrorKind::State, message)));
        }
    }
}

/// The joint result of several settlements. All have ended when it is dropped.
struct JoinedSettlement {
    all: Result<Settled, Error>,
    sender: SettlementSender,
}

impl JoinedSettlement {
    /// Adds the result of an ended settlement. An error is kept if the others have nothing to say.
    fn add(&mut self, result: &Result<Settled, Error>) {
        let nothing = Settled::default();
        self.all = match (&self.all, result) {
            (Ok(all), Ok(settled)) => Ok(all.most(*settled)),
            (Ok(all), Err(error)) if *all == nothing => Err(error.clone()),
            (Err(_), Ok(settled)) if *settled != nothing => Ok(*settled),
            (all, _) => all.clone(),
        };
    }
}

impl Drop for JoinedSettlement {
    fn drop(&mut self) {
        self.sender.finish(mem::replace(&mut self.all, Ok(Settled::default())));
    }
}

#[cfg(test)]
mod tests;
