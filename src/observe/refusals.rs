//! What a layer reports of requests without a key.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(feature = "tracing")]
use super::events;
use crate::Error;

/// Warns of the first request of a layer that has no key. Further ones are no events, since callers
/// may send as many as they like.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    #[cfg(feature = "tracing")]
    has_warned: AtomicBool,
}

#[allow(clippy::unused_self, reason = "it reports nothing without the feature")]
impl KeyWatch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            has_warned: AtomicBool::new(false),
        }
    }

    pub(crate) fn missing(&self, why: &Error, admitted: bool) {
        #[cfg(feature = "tracing")]
        if !self.has_warned.swap(true, Relaxed) {
            events::no_key(why, admitted);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (why, admitted);
    }
}
