//! Makes events of the decisions of one limiter.

use std::sync::Arc;

use tokio::time::Instant;

use super::events;
use super::recorded_outcome::{Asked, KINDS, error_of, kind_index};
use super::seldom::Seldom;
use crate::{Decision, Error, ErrorKind};

/// Makes events under the name of a limiter.
#[derive(Debug)]
pub(crate) struct Tracer {
    limiter: Arc<str>,
    /// For each kind of error: those that callers get.
    undecided: [Seldom; KINDS.len()],
    /// For each kind: those that a fallback or a shadow stands in for.
    stood_in: [Seldom; KINDS.len()],
}

impl Tracer {
    pub(crate) fn new(limiter: Arc<str>) -> Self {
        Self { limiter, undecided: Default::default(), stood_in: Default::default() }
    }

    /// Returns true if somebody listens to decisions.
    #[inline]
    #[allow(clippy::unused_self, reason = "it is asked of the one who makes the events")]
    pub(crate) fn shows_decisions(&self) -> bool {
        events::shows_decisions()
    }

    /// Makes an event of a request without a key, for those who listen to decisions. It warns of
    /// nothing, since callers may send as many as they like.
    pub(crate) fn record_keyless(&self, result: Result<&Decision, &Error>) {
        if self.shows_decisions() {
            let recorded = Asked::KEYLESS.recorded(result, None);
            events::decided(&self.limiter, &Asked::KEYLESS, None, 0.0, recorded, result);
        }
    }

    /// Makes an event of a result, if it was `begun` for somebody who listens, and of its fault.
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
        // The decision says it, at DEBUG: callers may send as many as they like.
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
