//! Reports of a limiter with a fallback.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::events;
use super::seldom::Seldom;
use crate::{Decision, Error};

/// Reports when a fallback begins to answer, and when the limiter decides again.
#[derive(Debug, Default)]
pub(crate) struct FallbackWatch {
    answers: AtomicBool,
    began: Seldom,
    ended: Seldom,
}

impl FallbackWatch {
    /// The fallback made a decision, since the limiter could not.
    pub(crate) fn answered(&self, decision: &Decision, cause: &Error) {
        if !self.answers.swap(true, Relaxed) {
            self.began.emit(|suppressed| events::fallback_began(decision, cause, suppressed));
        }
    }

    /// The limiter itself made a decision.
    #[inline]
    pub(crate) fn decided(&self) {
        if self.answers.load(Relaxed) && self.answers.swap(false, Relaxed) {
            self.ended.emit(events::fallback_ended);
        }
    }
}
