//! The outcome of a charge in metrics and events.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::decision::Origin;
use crate::core::{Charge, Decision, Error, ErrorKind, Outcome};

/// The data of a charge that is known when its limiter is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedCharge {
    pub(crate) cost: u64,
    max_wait: Duration,
    /// The time that the same request has already waited, if nothing can be reserved.
    retried_for: Duration,
}

/// The outcome of a result. Each charge has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedOutcome {
    Admitted,
    /// Admitted after this time.
    Delayed(Duration),
    Denied,
    Undecided,
    /// No limiter decided, and `FailOpen` admitted.
    FailedOpen,
    /// A switch is off: no limiter was asked.
    SwitchedOff,
    /// The request asks again after a pause, so it is not decided yet.
    AsksAgain,
}

impl AskedCharge {
    /// The data of a request without a key, about which no limiter was asked: one unit, no wait.
    pub(crate) const KEYLESS: Self =
        Self { cost: 1, max_wait: Duration::ZERO, retried_for: Duration::ZERO };

    pub(crate) fn of(charge: &Charge) -> Self {
        Self {
            cost: charge.units(),
            max_wait: charge.longest_wait().unwrap_or_default(),
            retried_for: charge.retried_for(),
        }
    }

    /// Returns true for a peek. It takes nothing and is not counted, since combinations peek at
    /// their members.
    pub(crate) fn is_peek(&self) -> bool {
        self.cost == 0
    }

    /// Returns the outcome that counts. In a shadow, this is the outcome without the shadow.
    pub(crate) fn recorded(
        &self,
        result: Result<&Decision, &Error>,
        begun: Option<Instant>,
    ) -> RecordedOutcome {
        let Ok(decision) = result else { return RecordedOutcome::Undecided };
        let asked = Self { retried_for: self.retried_for.max(decision.waited()), ..*self };
        match (decision.origin(), decision.shadowed()) {
            (Origin::FailOpen, _) => RecordedOutcome::FailedOpen,
            (Origin::Off, _) => RecordedOutcome::SwitchedOff,
            (_, Some(Err(_))) => RecordedOutcome::Undecided,
            // A shadow does not ask again.
            (_, Some(Ok(Outcome::Retry(_)))) => RecordedOutcome::Denied,
            (_, Some(Ok(outcome))) => asked.of_outcome(outcome, begun),
            (_, None) => asked.of_outcome(decision.outcome(), begun),
        }
    }

    pub(crate) fn of_outcome(&self, outcome: Outcome, begun: Option<Instant>) -> RecordedOutcome {
        let elapsed = || begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        match outcome {
            Outcome::Allow if self.retried_for.is_zero() => RecordedOutcome::Admitted,
            Outcome::Allow => RecordedOutcome::Delayed(self.retried_for.saturating_add(elapsed())),
            Outcome::Wait(wait) => RecordedOutcome::Delayed(wait),
            // As the caller decides: a pause of 0 needs time too.
            Outcome::Retry(pause)
                if pause.max(Duration::from_nanos(1))
                    <= self.max_wait.saturating_sub(elapsed()) =>
            {
                RecordedOutcome::AsksAgain
            }
            Outcome::Retry(_) | Outcome::Deny { .. } => RecordedOutcome::Denied,
        }
    }
}

impl RecordedOutcome {
    /// Their names, in the order of [`index`](Self::index).
    pub(crate) const NAMES: [&'static str; 7] =
        ["admitted", "delayed", "denied", "undecided", "failed open", "switched off", "asks again"];

    /// The number of those that a limiter decides, which come first. They are labels of one metric.
    pub(crate) const DECIDED: usize = 4;

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Admitted => 0,
            Self::Delayed(_) => 1,
            Self::Denied => 2,
            Self::Undecided => 3,
            Self::FailedOpen => 4,
            Self::SwitchedOff => 5,
            Self::AsksAgain => 6,
        }
    }

    pub(crate) fn is_decided(self) -> bool {
        self.index() < Self::DECIDED
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// The names of the kinds of errors, each at the place that [`kind_index`] returns.
pub(crate) const KINDS: [&str; 6] =
    ["infrastructure", "saturation", "capacity", "configuration", "request", "state"];

/// Returns the place of the kind of an error: that of the variant.
pub(crate) fn kind_index(error: &Error) -> usize {
    // The last one, so that a new kind is put into the list.
    const _: () = assert!(ErrorKind::State as usize + 1 == KINDS.len());
    error.kind() as usize
}

/// Returns the error of a result, even if a fallback or a shadow hides it.
pub(crate) fn error_of<'a>(result: Result<&'a Decision, &'a Error>) -> Option<&'a Error> {
    match result {
        Ok(decision) => {
            decision.fallback_cause().or_else(|| decision.shadowed().and_then(Result::err))
        }
        Err(error) => Some(error),
    }
}

#[cfg(test)]
mod tests;
