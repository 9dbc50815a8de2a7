//! Reports of a layer about requests that nobody decided about.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::events;
use super::recorded_outcome::{KINDS, kind_index};
use crate::Error;

/// Warns of the first request of a layer that has no key, and of the first of each kind that was
/// refused undecided. Further ones are no events, since callers may send as many as they like.
#[derive(Debug, Default)]
pub(crate) struct RefusalWatch {
    has_warned_of_key: AtomicBool,
    /// For each kind of error.
    has_warned_of: [AtomicBool; KINDS.len()],
}

impl RefusalWatch {
    /// A request has no key. One is admitted where the limit is in a shadow.
    pub(crate) fn no_key(&self, why: &Error, admitted: bool) {
        if !self.has_warned_of_key.swap(true, Relaxed) {
            events::no_key(why, admitted);
        }
    }

    /// A request is refused, since nothing could be decided.
    pub(crate) fn undecided(&self, why: &Error) {
        if !self.has_warned_of[kind_index(why.kind())].swap(true, Relaxed) {
            events::refused_undecided(why);
        }
    }
}
