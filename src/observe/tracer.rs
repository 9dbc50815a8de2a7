//! Makes events of the decisions of one limiter.

use std::sync::Arc;

use tokio::time::Instant;

use super::events;
use super::recorded_outcome::{Asked, KINDS, error_of, kind_index};
use super::seldom::Seldom;
use crate::settlement::{Settled, Settlement};
use crate::{Decision, Error, ErrorKind};

/// Makes events under the name of a limiter.
#[derive(Debug)]
pub(crate) struct Tracer {
    limiter: Arc<str>,
    /// For each kind of error: the errors that callers get.
    undecided: [Seldom; KINDS.len()],
    /// For each kind of error: the errors for which a fallback or a shadow answers.
    stood_in: [Seldom; KINDS.len()],
}

impl Tracer {
    pub(crate) fn new(limiter: Arc<str>) -> Self {
        Self { limiter, undecided: Default::default(), stood_in: Default::default() }
    }

    /// Returns true if a subscriber listens to decisions.
    #[inline]
    #[allow(clippy::unused_self, reason = "it is asked of the one who makes the events")]
    pub(crate) fn shows_decisions(&self) -> bool {
        events::shows_decisions()
    }

    /// Emits a request without a key, if a subscriber listens to decisions. It does not warn, since
    /// callers may send any number of such requests.
    pub(crate) fn record_keyless(&self, result: Result<&Decision, &Error>) {
        if self.shows_decisions() {
            let recorded = Asked::KEYLESS.recorded(result, None);
            events::decided(&self.limiter, &Asked::KEYLESS, None, 0.0, recorded, result);
        }
    }

    /// Emits the units that a settlement could not take, when they are known.
    pub(crate) fn record_settlement(self: &Arc<Self>, settlement: &mut Settlement) {
        let tracer = Arc::clone(self);
        settlement.observe(move |settled| {
            if let Ok(Settled { not_taken: units @ 1.., .. }) = settled {
                events::not_taken(&tracer.limiter, *units);
            }
        });
    }

    /// Emits a result if a subscriber listened at `begun`, and emits its error.
    pub(crate) fn record(
        &self,
        asked: &Asked,
        key: Option<&str>,
        begun: Option<Instant>,
        result: Result<&Decision, &Error>,
    ) {
        if let Some(begun) = begun {
            let (seconds, recorded) =
                (begun.elapsed().as_secs_f64(), asked.recorded(result, Some(begun)));
            events::decided(&self.limiter, asked, key, seconds, recorded, result);
        }
        let Some(error) = error_of(result) else { return };
        // Only the decision's event at DEBUG has it: callers may send any number of such requests.
        if error.kind() == ErrorKind::Request {
            return;
        }
        let kind = kind_index(error);
        match result {
            Ok(decision) => self.stood_in[kind].emit(|suppressed| {
                events::stood_in(&self.limiter, decision, error, suppressed);
            }),
            Err(_) => self.undecided[kind].emit(|suppressed| {
                events::undecided(&self.limiter, error, suppressed);
            }),
        }
    }
}
