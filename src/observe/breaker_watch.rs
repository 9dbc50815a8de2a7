//! The reports of a breaker.

use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge};

#[cfg(feature = "metrics")]
use super::catalog;
use super::events;
#[cfg(feature = "metrics")]
use super::recorder::{Handles, Value, counter, gauge};
use super::seldom::Seldom;
use crate::Error;

/// The state of a breaker, as a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Asks = 0,
    Probes = 1,
    Refuses = 2,
}

/// Reports the states of a breaker. Metrics need a name; events do without.
#[derive(Debug)]
pub(crate) struct BreakerWatch {
    name: Option<Arc<str>>,
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
        let watch = Self {
            name,
            #[cfg(feature = "metrics")]
            handles: Handles::default(),
            #[cfg(feature = "metrics")]
            state: AtomicU8::new(State::Asks as u8),
            opened: Seldom::default(),
            closed: Seldom::default(),
        };
        watch.set_state(State::Asks);
        watch
    }

    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// It opened. `refusal` is what callers get.
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

    pub(crate) fn set_state(&self, state: State) {
        #[cfg(feature = "metrics")]
        {
            self.state.store(state as u8, Relaxed);
            if let Some((gauge, _)) = self.handles() {
                gauge.set(f64::from(state as u8));
            }
        }
        let _ = state;
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
