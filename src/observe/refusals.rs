//! Reports of a layer about requests that nobody decided about.

#[cfg(feature = "tracing")]
use std::array::from_fn;
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(feature = "tracing")]
use super::events;
#[cfg(feature = "tracing")]
use super::recorded_outcome::{KINDS, kind_index};
use crate::Error;

/// Warns of the first request of a layer that has no key, and of the first of each kind that was
/// refused undecided. Further ones are no events, since callers may send as many as they like.
#[derive(Debug)]
pub(crate) struct RefusalWatch {
    #[cfg(feature = "tracing")]
    has_warned_of_key: AtomicBool,
    /// For each kind of error.
    #[cfg(feature = "tracing")]
    has_warned_of: [AtomicBool; KINDS.len()],
}

#[allow(clippy::unused_self, reason = "it reports nothing without the feature")]
impl RefusalWatch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            has_warned_of_key: AtomicBool::new(false),
            #[cfg(feature = "tracing")]
            has_warned_of: from_fn(|_| AtomicBool::new(false)),
        }
    }

    /// A request has no key. One is admitted where the limit is in a shadow.
    pub(crate) fn no_key(&self, why: &Error, admitted: bool) {
        #[cfg(feature = "tracing")]
        if !self.has_warned_of_key.swap(true, Relaxed) {
            events::no_key(why, admitted);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (why, admitted);
    }

    /// A request is refused, since nothing could be decided.
    pub(crate) fn undecided(&self, why: &Error) {
        #[cfg(feature = "tracing")]
        if !self.has_warned_of[kind_index(why.kind())].swap(true, Relaxed) {
            events::refused_undecided(why);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = why;
    }
}
