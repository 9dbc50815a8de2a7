//! A call that a breaker let through: it reports its end, however it ends.

use std::sync::Arc;
use std::task::Context;

use super::circuit::Permit;
use super::outcome::Outcome;
use super::shared::Shared;
use super::slowness::SlownessWatch;
use crate::{Decision, Error, ErrorKind, Origin};

/// Dropped without an answer, it says nothing of the limiter, unless it was slow already.
#[derive(Debug)]
pub(super) struct Call {
    shared: Arc<Shared>,
    permit: Permit,
    slowness: Option<SlownessWatch>,
    is_over: bool,
}

impl Call {
    pub(super) fn new(shared: Arc<Shared>, permit: Permit) -> Self {
        let slowness = shared.settings.slow_after.map(SlownessWatch::new);
        Self { shared, permit, slowness, is_over: false }
    }

    /// The call has no answer yet.
    ///
    /// # Errors
    ///
    /// If it cannot be watched outside of a runtime.
    pub(super) fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        self.slowness.as_mut().map_or(Ok(()), |slowness| slowness.poll(cx))
    }

    pub(super) fn end(mut self, answer: &Result<Decision, Error>) {
        let outcome = match what_it_says(answer) {
            Outcome::Failed => Outcome::Failed,
            _ if self.is_slow() => Outcome::Slow,
            outcome => outcome,
        };
        self.is_over = true;
        self.shared.end(self.permit, outcome, answer.as_ref().err());
    }

    fn is_slow(&self) -> bool {
        self.slowness.as_ref().is_some_and(SlownessWatch::is_slow)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            let outcome = if self.is_slow() { Outcome::Slow } else { Outcome::Unknown };
            self.shared.end(self.permit, outcome, None);
        }
    }
}

/// Returns the outcome of a call by its answer: what that says of the limiter that gave it.
fn what_it_says(answer: &Result<Decision, Error>) -> Outcome {
    match answer {
        Ok(decision) => match decision.origin() {
            Origin::Store | Origin::Local => Outcome::Answered,
            // The store did not decide it.
            _ => Outcome::Unknown,
        },
        Err(error) => match error.kind() {
            ErrorKind::Infrastructure => Outcome::Failed,
            // The store answers. An open breaker would hide that it is full, or set up wrongly, or
            // holds a corrupt value; and a fallback could admit.
            ErrorKind::Capacity | ErrorKind::Configuration | ErrorKind::State => Outcome::Answered,
            // Load of this process and requests say nothing of a store.
            ErrorKind::Saturation => Outcome::Saturated,
            ErrorKind::Request => Outcome::Unknown,
        },
    }
}
