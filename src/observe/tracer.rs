//! Makes events of the decisions of one limiter.

use std::sync::Arc;

use tokio::time::Instant;

use super::events;
use super::recorded_outcome::{AskedCharge, KINDS, error_of, kind_index};
use super::seldom::Seldom;
use crate::core::settlement::{Settled, Settlement};
use crate::core::{Decision, Error, ErrorKind};

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

    /// Emits a request without a key. It does not warn, since callers may send any number of such
    /// requests.
    pub(crate) fn record_keyless(&self, result: Result<&Decision, &Error>) {
        events::decided(&self.limiter, &AskedCharge::KEYLESS, None, None, result);
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
        asked: &AskedCharge,
        key: Option<&str>,
        begun: Option<Instant>,
        result: Result<&Decision, &Error>,
    ) {
        if begun.is_some() {
            events::decided(&self.limiter, asked, key, begun, result);
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
