//! The handles of all that is counted under one name.

use std::array;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::catalog;
use super::recorded_outcome::{KINDS, RecordedOutcome, error_of, kind_index};
use super::recorder::{Value, counter, gauge, histogram};
use crate::core::decision::Origin;
use crate::core::waiters::Waiters;
use crate::core::{Decision, Error, ErrorKind};

/// The results for the units of a settled charge.
const SETTLED: [&str; 4] = ["charged", "given_back", "lost", "not_taken"];

/// The outcomes of charges that a shadow admits. An alert leaves requests that could not be asked
/// about out of the undecided ones, so it must not leave them out twice.
const SHADOWED: [&str; 3] = ["denied", "undecided", "invalid"];

/// The series of one limiter, or of one policy.
pub(super) struct LimiterHandles {
    decisions: [Counter; RecordedOutcome::DECIDED],
    fail_open: Counter,
    switched_off: Counter,
    shadow_refusals: [Counter; SHADOWED.len()],
    fallbacks: Counter,
    errors: [Counter; KINDS.len()],
    pub(super) abandoned: Counter,
    /// Made at the first settlement, since most limiters do not have settlements.
    settled_units: OnceLock<[Counter; SETTLED.len()]>,
    pub(super) decision_seconds: Histogram,
    wait_seconds: Histogram,
    pub(super) waiters: Arc<WaitersGauge>,
}

impl LimiterHandles {
    pub(super) fn of(limiter: &Arc<str>) -> Self {
        use Value::{Name, Word};
        let name = [Name(limiter)];
        Self {
            decisions: array::from_fn(|index| {
                let outcome = Word(RecordedOutcome::NAMES[index]);
                counter(&catalog::DECISIONS, &[Name(limiter), outcome])
            }),
            fail_open: counter(&catalog::FAIL_OPEN, &name),
            switched_off: counter(&catalog::SWITCHED_OFF, &name),
            shadow_refusals: SHADOWED
                .map(|outcome| counter(&catalog::SHADOW_REFUSALS, &[Name(limiter), Word(outcome)])),
            fallbacks: counter(&catalog::FALLBACKS, &name),
            errors: KINDS.map(|kind| counter(&catalog::ERRORS, &[Name(limiter), Word(kind)])),
            abandoned: counter(&catalog::ABANDONED, &name),
            settled_units: OnceLock::new(),
            decision_seconds: histogram(&catalog::DECISION_SECONDS, &name),
            wait_seconds: histogram(&catalog::WAIT_SECONDS, &name),
            waiters: Arc::new(WaitersGauge(gauge(&catalog::WAITERS, &name))),
        }
    }

    /// Counts an outcome. `shadowed` is the error in a shadow, or `Some(None)` for a shadow that
    /// decides.
    pub(super) fn count(&self, recorded: RecordedOutcome, shadowed: Option<Option<&Error>>) {
        match (recorded, shadowed) {
            (RecordedOutcome::Denied, Some(_)) => self.shadow_refusals[0].increment(1),
            (RecordedOutcome::Undecided, Some(error)) => {
                let is_invalid = error.is_some_and(|error| error.kind() == ErrorKind::Request);
                self.shadow_refusals[1 + usize::from(is_invalid)].increment(1);
            }
            _ => {}
        }
        match recorded {
            RecordedOutcome::FailedOpen => self.fail_open.increment(1),
            RecordedOutcome::SwitchedOff => self.switched_off.increment(1),
            RecordedOutcome::AsksAgain => {}
            decided => self.decisions[decided.index()].increment(1),
        }
        if let RecordedOutcome::Delayed(wait) = recorded {
            self.wait_seconds.record(wait);
        }
    }

    pub(super) fn count_settled(&self, limiter: &Arc<str>, units: [u64; SETTLED.len()]) {
        let counters = self.settled_units.get_or_init(|| {
            SETTLED.map(|units| {
                counter(&catalog::SETTLED_UNITS, &[Value::Name(limiter), Value::Word(units)])
            })
        });
        for (counter, units) in counters.iter().zip(units) {
            counter.increment(units);
        }
    }

    /// Counts an error, and the fallback that answers in its place.
    pub(super) fn count_faults(&self, result: Result<&Decision, &Error>) {
        if let Some(error) = error_of(result) {
            self.errors[kind_index(error)].increment(1);
        }
        let by_fallback = |decision: &Decision| {
            decision.fallback_cause().is_some() && decision.origin() != Origin::FailOpen
        };
        if result.is_ok_and(by_fallback) {
            self.fallbacks.increment(1);
        }
    }
}

pub(super) struct WaitersGauge(Gauge);

impl Waiters for WaitersGauge {
    fn add(&self) -> usize {
        self.0.increment(1.0);
        0
    }

    fn remove(&self) -> Option<Duration> {
        self.0.decrement(1.0);
        None
    }
}
