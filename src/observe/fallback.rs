//! Reports of a limiter with a fallback.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(feature = "tracing")]
use super::events;
#[cfg(feature = "tracing")]
use super::seldom::Seldom;
use crate::{Decision, Error};

/// Reports when a fallback begins to answer, and when the limiter decides again.
#[derive(Debug)]
pub(crate) struct FallbackWatch {
    #[cfg(feature = "tracing")]
    answers: AtomicBool,
    #[cfg(feature = "tracing")]
    began: Seldom,
    #[cfg(feature = "tracing")]
    ended: Seldom,
}

#[allow(clippy::unused_self, reason = "it reports nothing without the feature")]
impl FallbackWatch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            answers: AtomicBool::new(false),
            #[cfg(feature = "tracing")]
            began: Seldom::new(),
            #[cfg(feature = "tracing")]
            ended: Seldom::new(),
        }
    }

    /// The fallback made a decision, since the limiter could not.
    pub(crate) fn answered(&self, decision: &Decision, cause: &Error) {
        #[cfg(feature = "tracing")]
        if !self.answers.swap(true, Relaxed) {
            self.began.emit(|suppressed| events::fallback_began(decision, cause, suppressed));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (decision, cause);
    }

    /// The limiter itself made a decision.
    #[inline]
    pub(crate) fn decided(&self) {
        #[cfg(feature = "tracing")]
        if self.answers.load(Relaxed) && self.answers.swap(false, Relaxed) {
            self.ended.emit(events::fallback_ended);
        }
    }
}
