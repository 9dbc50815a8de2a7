//! The watches, which turn the reports of breakers, pools, limiters and layers into metrics and
//! events.

use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Histogram};
use tokio::time::Instant;

#[cfg(feature = "metrics")]
use super::catalog;
use super::events;
use super::recorded_outcome::{KINDS, kind_index};
#[cfg(feature = "metrics")]
use super::recorder::{Handles, Value, counter, gauge, histogram};
use super::seldom::Seldom;
use crate::core::{Decision, Error};

/// Reports the states of a breaker. Metrics need a name, events do not.
#[derive(Debug, Default)]
pub(crate) struct BreakerWatch {
    pub(crate) name: Option<Arc<str>>,
    #[cfg(feature = "metrics")]
    handles: Handles<(Gauge, Counter)>,
    /// The last state, for a recorder that comes later.
    #[cfg(feature = "metrics")]
    state: AtomicU8,
    opened: Seldom,
    closed: Seldom,
}

impl BreakerWatch {
    pub(crate) fn new(name: Option<Arc<str>>) -> Self {
        let watch = Self { name, ..Self::default() };
        watch.show_state();
        watch
    }

    /// Reports that it opened. `refusal` is the callers' error.
    pub(crate) fn opened(&self, refusal: &Error) {
        self.opened.emit(|suppressed| {
            events::breaker_opened(self.name.as_deref(), refusal, suppressed);
        });
    }

    pub(crate) fn closed(&self) {
        self.closed.emit(|suppressed| events::breaker_closed(self.name.as_deref(), suppressed));
    }

    pub(crate) fn refused(&self) {
        #[cfg(feature = "metrics")]
        if let Some((_, refusals)) = self.handles() {
            refusals.increment(1);
        }
    }

    /// Sets the state: 0 asks, 1 probes, 2 refuses.
    pub(crate) fn set_state(&self, state: u8) {
        #[cfg(feature = "metrics")]
        self.state.store(state, Relaxed);
        let _ = state;
    }

    /// Shows the recorder the state. No lock of the breaker is held, since a gauge may use a
    /// limiter of it. So another thread may change the state meanwhile: then the gauge is set once
    /// more.
    pub(crate) fn show_state(&self) {
        #[cfg(feature = "metrics")]
        if let Some((gauge, _)) = self.handles() {
            let mut shown = None;
            while let state = self.state.load(Relaxed)
                && shown != Some(state)
            {
                gauge.set(f64::from(state));
                shown = Some(state);
            }
        }
    }

    #[cfg(feature = "metrics")]
    fn handles(&self) -> Option<&(Gauge, Counter)> {
        let name = [Value::Name(self.name.as_ref()?)];
        self.handles.get(|| {
            let state = gauge(&catalog::BREAKER_STATE, &name);
            state.set(f64::from(self.state.load(Relaxed)));
            (state, counter(&catalog::BREAKER_REFUSALS, &name))
        })
    }
}

/// Reports the calls of one limiter. Clones report together.
#[derive(Clone)]
pub(crate) struct CallWatch {
    #[cfg(feature = "metrics")]
    limiter: Arc<str>,
    #[cfg(feature = "metrics")]
    handles: Arc<Handles<CallHandles>>,
}

#[cfg(feature = "metrics")]
struct CallHandles {
    batch_size: Histogram,
    call_seconds: Histogram,
    unanswered: Counter,
}

#[cfg(feature = "metrics")]
impl CallWatch {
    pub(crate) fn new(limiter: &Arc<str>) -> Self {
        let watch = Self { limiter: Arc::clone(limiter), handles: Arc::default() };
        watch.handles();
        watch
    }

    /// Reports that a call with this number of charges and settlements is sent.
    pub(crate) fn sent(&self, requests: usize) {
        if let Some(handles) = self.handles() {
            handles.batch_size.record(requests as f64);
        }
    }

    /// Reports the answer of a call that was sent at this instant.
    pub(crate) fn answered(&self, sent: Instant) {
        if let Some(handles) = self.handles() {
            handles.call_seconds.record(sent.elapsed());
        }
    }

    pub(crate) fn unanswered(&self) {
        if let Some(handles) = self.handles() {
            handles.unanswered.increment(1);
        }
    }

    fn handles(&self) -> Option<&CallHandles> {
        let name = [Value::Name(&self.limiter)];
        self.handles.get(|| CallHandles {
            batch_size: histogram(&catalog::BATCH_SIZE, &name),
            call_seconds: histogram(&catalog::CALL_SECONDS, &name),
            unanswered: counter(&catalog::UNANSWERED_CALLS, &name),
        })
    }
}

#[cfg(not(feature = "metrics"))]
#[allow(clippy::unused_self, reason = "it reports nothing without the feature")]
impl CallWatch {
    pub(crate) fn new(_limiter: &Arc<str>) -> Self {
        Self {}
    }

    pub(crate) fn sent(&self, _requests: usize) {}

    pub(crate) fn answered(&self, _sent: Instant) {}

    pub(crate) fn unanswered(&self) {}
}

/// Reports the connections of one pool. `address` is the server's address, without a password.
#[derive(Default)]
pub(crate) struct ConnectionWatch {
    #[cfg(feature = "metrics")]
    handles: Handles<[Counter; 2]>,
    again: Seldom,
    failed: Seldom,
    lost: Seldom,
}

impl ConnectionWatch {
    pub(crate) fn made(&self, address: &str, again: bool) {
        #[cfg(feature = "metrics")]
        self.count(0);
        match again {
            true => self.again.emit(|suppressed| events::connected_again(address, suppressed)),
            false => events::connected(address),
        }
    }

    pub(crate) fn failed(&self, address: &str, error: &Error) {
        #[cfg(feature = "metrics")]
        self.count(1);
        self.failed.emit(|suppressed| events::connect_failed(address, error, suppressed));
    }

    pub(crate) fn lost(&self, address: &str, reason: &str) {
        self.lost.emit(|suppressed| events::connection_lost(address, reason, suppressed));
    }

    #[cfg(feature = "metrics")]
    fn count(&self, result: usize) {
        let handles = self.handles.get(|| {
            ["made", "failed"].map(|word| counter(&catalog::CONNECTS, &[Value::Word(word)]))
        });
        if let Some(handles) = handles {
            handles[result].increment(1);
        }
    }
}

/// Reports when a fallback begins to answer, and when the limiter decides again.
#[derive(Debug, Default)]
pub(crate) struct FallbackWatch {
    answers: AtomicBool,
    began: Seldom,
    ended: Seldom,
}

impl FallbackWatch {
    pub(crate) fn answered(&self, decision: &Decision, cause: &Error) {
        if !self.answers.swap(true, Relaxed) {
            self.began.emit(|suppressed| events::fallback_began(decision, cause, suppressed));
        }
    }

    #[inline]
    pub(crate) fn decided(&self) {
        if self.answers.load(Relaxed) && self.answers.swap(false, Relaxed) {
            self.ended.emit(events::fallback_ended);
        }
    }
}

/// Warns of the first request of a layer without a key, and of the first that was refused undecided
/// for each kind of error. Later requests are not warned of, since callers may send any number of
/// them.
#[derive(Debug, Default)]
pub(crate) struct RefusalWatch {
    has_warned_of_key: AtomicBool,
    /// For each kind of error.
    has_warned_of: [AtomicBool; KINDS.len()],
    has_warned_of_units: AtomicBool,
}

impl RefusalWatch {
    /// Reports a request without a key. It is admitted if the limit is in a shadow.
    pub(crate) fn no_key(&self, why: &Error, admitted: bool) {
        if !self.has_warned_of_key.swap(true, Relaxed) {
            events::no_key(why, admitted);
        }
    }

    pub(crate) fn undecided(&self, why: &Error) {
        if !self.has_warned_of[kind_index(why)].swap(true, Relaxed) {
            events::refused_undecided(why);
        }
    }

    pub(crate) fn unsettled(&self) {
        if !self.has_warned_of_units.swap(true, Relaxed) {
            events::unsettled();
        }
    }
}
