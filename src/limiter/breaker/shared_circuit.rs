//! The state that the clones of a breaker share: the circuit behind a lock, its counts, and its
//! error.

use std::error::Error as StdError;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::circuit::{Circuit, CircuitChange, Ending, Permit, Trouble};
use super::{BreakerCounts, BreakerState, Settings};
use crate::core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::core::sync::{Mutex, lock};
use crate::core::{Error, ErrorKind};
use crate::observe::BreakerWatch;

const FAILED: &str = "the breaker is open, since the limiter failed";
const FAILED_PARTLY: &str = "the breaker is open, since some calls of the limiter failed";
const SLOW: &str = "the breaker is open, since the limiter was slow or the process busy";

#[derive(Debug)]
pub(super) struct SharedCircuit {
    pub(super) settings: Settings,
    pub(super) watch: BreakerWatch,
    start: Instant,
    /// The period of a closed circuit, and 0 while it is open. Calls of a closed circuit begin
    /// without the lock. A call that reads an old value counts as a call that began earlier.
    closed_period: AtomicU64,
    guarded: Mutex<Guarded>,
}

#[derive(Debug)]
struct Guarded {
    circuit: Circuit,
    counts: BreakerCounts,
    cause: Option<Error>,
    /// The error that callers get while it is open.
    refusal: Error,
}

impl SharedCircuit {
    pub(super) fn new(settings: Settings, name: Option<Arc<str>>) -> Self {
        let circuit = Circuit::new();
        Self {
            settings,
            watch: BreakerWatch::new(name),
            start: Instant::now(),
            closed_period: AtomicU64::new(circuit.closed_period().unwrap_or(0)),
            guarded: Mutex::new(Guarded {
                circuit,
                counts: BreakerCounts::default(),
                cause: None,
                refusal: refusal(Trouble::Errors, None),
            }),
        }
    }

    pub(super) fn refuses(&self) -> bool {
        self.closed_period.load(Relaxed) == 0 && lock(&self.guarded).circuit.refuses(self.now())
    }

    pub(super) fn refuse(&self) -> Error {
        self.watch.refused();
        let mut guarded = lock(&self.guarded);
        guarded.counts.refused += 1;
        guarded.refusal.clone()
    }

    /// # Errors
    ///
    /// If the breaker is open, and no probe is due or one is in flight.
    pub(super) fn admit(&self) -> Result<Permit, Error> {
        match self.closed_period.load(Relaxed) {
            0 => {}
            period => return Ok(Permit::of_closed(period)),
        }
        let mut guarded = lock(&self.guarded);
        let Some(permit) = guarded.circuit.admit(self.now(), &self.settings) else {
            drop(guarded);
            return Err(self.refuse());
        };
        if permit.is_probe() {
            guarded.counts.probes += 1;
            self.watch.set_state(BreakerState::HalfOpen as u8);
            drop(guarded);
            self.watch.show_state();
        }
        Ok(permit)
    }

    pub(super) fn end(&self, permit: Permit, outcome: Ending, error: Option<&Error>) {
        let mut lock = lock(&self.guarded);
        let guarded = &mut *lock;
        if outcome == Ending::Failed
            && let Some(failure) = error.and_then(failure)
        {
            guarded.cause = Some(failure);
        }
        let (now, pause) = (self.now(), jittered(self.settings.pause));
        let Some(change) = guarded.circuit.end(permit, outcome, now, pause, &self.settings) else {
            return;
        };
        match change {
            CircuitChange::Opened(trouble) => {
                guarded.counts.opened += 1;
                guarded.refusal = refusal(trouble, guarded.cause.clone());
            }
            CircuitChange::StaysOpen(trouble) => {
                guarded.refusal = refusal(trouble, guarded.cause.clone());
            }
            CircuitChange::Closed => guarded.cause = None,
        }
        self.closed_period.store(guarded.circuit.closed_period().unwrap_or(0), Relaxed);
        let is_closed = change == CircuitChange::Closed;
        let state = if is_closed { BreakerState::Closed } else { BreakerState::Open };
        self.watch.set_state(state as u8);
        let refusal = guarded.refusal.clone();
        // A gauge or a subscriber may use a limiter of this breaker, so the lock is released first.
        drop(lock);
        self.watch.show_state();
        match change {
            CircuitChange::Opened(_) => self.watch.opened(&refusal),
            CircuitChange::StaysOpen(_) => {}
            CircuitChange::Closed => self.watch.closed(),
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        lock(&self.guarded).circuit.state(self.now())
    }

    pub(super) fn counts(&self) -> BreakerCounts {
        lock(&self.guarded).counts
    }

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.start)
    }
}

/// Makes the error of refused calls. A fallback treats it like the problem itself: only errors that
/// load cannot cause may fail open.
fn refusal(trouble: Trouble, cause: Option<Error>) -> Error {
    let (kind, message, cause) = match trouble {
        Trouble::Errors => (ErrorKind::Infrastructure, FAILED, cause),
        Trouble::SomeErrors => (ErrorKind::Saturation, FAILED_PARTLY, cause),
        Trouble::Slowness => (ErrorKind::Saturation, SLOW, None),
    };
    let error = Error::new(kind, message);
    match cause {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// Returns the failure that an error reports. For the error of an inner breaker, it is the failure
/// that opened that breaker. Otherwise each probe could nest one more refusal in a refusal.
fn failure(error: &Error) -> Option<Error> {
    let own = |error: &'_ (dyn StdError + 'static)| error.downcast_ref::<Error>().cloned();
    let chain =
        successors(Some(error as &(dyn StdError + 'static)), |error| StdError::source(*error));
    match chain.filter(|error| error.to_string() == FAILED).last() {
        Some(refusal) => refusal.source().and_then(own),
        None => Some(error.clone()),
    }
}

/// Returns a random time from the pause to twice the pause, so that processes probe at different
/// times.
fn jittered(pause: Duration) -> Duration {
    let most = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    pause.saturating_add(Duration::from_micros(fastrand::u64(..=most)))
}

#[cfg(all(test, interleavings))]
mod interleavings;
