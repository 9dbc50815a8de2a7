//! Requests that wait for their slots, in a line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::core::mark::Mark;
use crate::core::settlement::Settlement;

/// A line of waiting requests. A decision with a wait passes it to the code that sleeps.
pub(crate) trait Waiters: Send + Sync {
    /// Begins the wait. Returns the number of requests that now wait for the same limiter, or 0.
    fn add(&self) -> usize;

    /// Ends the wait. Returns the slot that the request used, since the Unix epoch, if it may
    /// differ from its own slot.
    fn remove(&self) -> Option<Duration>;

    /// Returns true if the key was paused since, so that the slot at this instant since the Unix
    /// epoch is not to be used.
    fn is_paused(&self, at: Duration) -> bool {
        let _ = at;
        false
    }

    /// Notes that a request without a slot is about to ask its limiter. Returns false if it may not,
    /// since another one is before it.
    fn asks(&self) -> bool {
        true
    }

    /// Returns the instant at which the request may go, if that may change. Wakes `waker` when it
    /// changes. For one that waits without a slot, the instant at which it asks.
    fn due(&self, waker: Option<&Waker>) -> Option<Instant> {
        let _ = waker;
        None
    }
}

/// The place in line of a reserved wait. Its reservation has it too.
pub(crate) trait Turn: Waiters {
    /// Passes the slot on to the requests behind, to the next charge, or back to the store. `None`:
    /// the slot is due, or it is not kept and no request has begun to wait for it.
    fn leave(&self) -> Option<Settlement>;

    /// Returns the mark that settles the slot. The slot then counts as used.
    fn mark(&self) -> Option<Mark>;

    /// The time from the charge of the slot to the slot.
    fn wait(&self) -> Duration {
        Duration::ZERO
    }
}

/// The mark of a reservation whose hold is renewed.
pub(crate) struct RenewedMark(Mutex<Mark>);

impl RenewedMark {
    pub(crate) fn new(mark: Mark) -> Self {
        Self(Mutex::new(mark))
    }

    /// The mark of the last renewal.
    pub(crate) fn get(&self) -> Mark {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, mark: Mark) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = mark;
    }
}

/// It waits in no line.
impl Waiters for RenewedMark {
    fn add(&self) -> usize {
        0
    }

    fn remove(&self) -> Option<Duration> {
        None
    }
}

impl Turn for RenewedMark {
    fn leave(&self) -> Option<Settlement> {
        None
    }

    fn mark(&self) -> Option<Mark> {
        Some(self.get())
    }
}

/// The lines of a charge of two limiters. The first one that knows an instant tells when it is due.
impl Waiters for (Arc<dyn Waiters>, Arc<dyn Waiters>) {
    fn add(&self) -> usize {
        self.0.add().max(self.1.add())
    }

    fn remove(&self) -> Option<Duration> {
        let (one, other) = (self.0.remove(), self.1.remove());
        one.or(other)
    }

    fn is_paused(&self, at: Duration) -> bool {
        self.0.is_paused(at) || self.1.is_paused(at)
    }

    fn asks(&self) -> bool {
        self.0.asks() & self.1.asks()
    }

    fn due(&self, waker: Option<&Waker>) -> Option<Instant> {
        self.0.due(waker).or_else(|| self.1.due(waker))
    }
}

/// The callers that wait for limiters of this type, and that no line counts. A limiter of an
/// application is only borrowed, so the process counts by types.
pub(crate) struct Callers(pub(crate) &'static str);

static CALLERS: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());

impl Callers {
    fn change(&self, change: impl FnOnce(&mut usize)) -> usize {
        let mut all = CALLERS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.entry(self.0).or_default();
        change(number);
        *number
    }
}

impl Waiters for Callers {
    fn add(&self) -> usize {
        self.change(|number| *number += 1)
    }

    fn remove(&self) -> Option<Duration> {
        self.change(|number| *number -= 1);
        None
    }
}

/// A request in a line, until it goes or is dropped.
pub(crate) struct Waiter(Option<Arc<dyn Waiters>>);

impl Waiter {
    /// Begins the wait, and returns the number of requests: see [`Waiters::add`].
    pub(crate) fn new(waiters: Arc<dyn Waiters>) -> (Self, usize) {
        let number = waiters.add();
        (Self(Some(waiters)), number)
    }

    /// Returns the instant at which it may go: see [`Waiters::due`].
    pub(crate) fn due(&self, waker: Option<&Waker>) -> Option<Instant> {
        self.0.as_ref()?.due(waker)
    }

    /// Notes that the request is about to ask: see [`Waiters::asks`].
    pub(crate) fn asks(&self) -> bool {
        self.0.as_ref().is_none_or(|waiters| waiters.asks())
    }

    /// Ends the wait: see [`Waiters::remove`]. Also returns true if the key was paused since.
    pub(crate) fn go(mut self) -> Option<(Duration, bool)> {
        let waiters = self.0.take()?;
        let at = waiters.remove()?;
        Some((at, waiters.is_paused(at)))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.take().and_then(|waiters| waiters.remove());
    }
}

debug_by_name!([] Waiter);
