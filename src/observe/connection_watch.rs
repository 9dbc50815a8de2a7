//! The reports of pools about their connections.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

#[cfg(feature = "metrics")]
use metrics::Counter;

#[cfg(feature = "metrics")]
use super::catalog;
#[cfg(feature = "tracing")]
use super::events::connections as events;
#[cfg(feature = "metrics")]
use super::recorder::{Handles, Value, counter};
#[cfg(feature = "tracing")]
use super::seldom::Seldom;
use crate::Error;

/// Reports the connections of one pool. `address` says where they lead, without a password.
pub(crate) struct ConnectionWatch {
    #[cfg(feature = "metrics")]
    handles: Handles<[Counter; 2]>,
    #[cfg(feature = "tracing")]
    has_failed: AtomicBool,
    #[cfg(feature = "tracing")]
    failed: Seldom,
    #[cfg(feature = "tracing")]
    lost: Seldom,
    #[cfg(feature = "tracing")]
    again: Seldom,
}

#[allow(clippy::unused_self, reason = "it reports nothing without the features")]
impl ConnectionWatch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            handles: Handles::new(),
            #[cfg(feature = "tracing")]
            has_failed: AtomicBool::new(false),
            #[cfg(feature = "tracing")]
            failed: Seldom::new(),
            #[cfg(feature = "tracing")]
            lost: Seldom::new(),
            #[cfg(feature = "tracing")]
            again: Seldom::new(),
        }
    }

    pub(crate) fn made(&self, address: impl FnOnce() -> String) {
        #[cfg(feature = "metrics")]
        self.count(0);
        #[cfg(feature = "tracing")]
        match self.has_failed.swap(false, Relaxed) {
            true => self.again.emit(|suppressed| events::connected_again(&address(), suppressed)),
            false => events::connected(&address()),
        }
        let _ = address;
    }

    pub(crate) fn failed(&self, address: impl FnOnce() -> String, error: &Error) {
        #[cfg(feature = "metrics")]
        self.count(1);
        #[cfg(feature = "tracing")]
        {
            self.has_failed.store(true, Relaxed);
            self.failed.emit(|suppressed| events::connect_failed(&address(), error, suppressed));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (address, error);
    }

    pub(crate) fn lost(&self, address: impl FnOnce() -> String, reason: &str) {
        #[cfg(feature = "tracing")]
        {
            self.has_failed.store(true, Relaxed);
            self.lost.emit(|suppressed| events::connection_lost(&address(), reason, suppressed));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (address, reason);
    }

    #[cfg(feature = "metrics")]
    fn count(&self, result: usize) {
        let handles = self.handles.get(|| {
            ["made", "failed"].map(|word| counter(&catalog::CONNECTS, &[Value::Word(word)]))
        });
        if let Some(handles) = handles {
            handles[result].increment(1);
        }
    }
}

/// Another server is the primary from now on.
pub(crate) fn primary_changed(service: &str, address: &str) {
    #[cfg(feature = "tracing")]
    events::primary_changed(service, address);
    #[cfg(not(feature = "tracing"))]
    let _ = (service, address);
}

/// Reports the hash slots of a cluster that have moved.
pub(crate) struct SlotWatch {
    /// The number of moved slots that are not reported yet.
    #[cfg(feature = "tracing")]
    unsaid: AtomicUsize,
    #[cfg(feature = "tracing")]
    redirected: Seldom,
}

#[allow(clippy::unused_self, reason = "it reports nothing without the feature")]
impl SlotWatch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            unsaid: AtomicUsize::new(0),
            #[cfg(feature = "tracing")]
            redirected: Seldom::new(),
        }
    }

    /// A redirect said that one has moved. A second's redirects are one event; the map tells of all
    /// others.
    pub(crate) fn redirected(&self) {
        #[cfg(feature = "tracing")]
        {
            self.unsaid.fetch_add(1, Relaxed);
            self.redirected.emit(|_| self.mapped(0));
        }
    }

    /// The map said that so many have moved, besides those of redirects.
    pub(crate) fn mapped(&self, slots: usize) {
        #[cfg(feature = "tracing")]
        match self.unsaid.swap(0, Relaxed) + slots {
            0 => {}
            slots => events::slots_moved(slots),
        }
        #[cfg(not(feature = "tracing"))]
        let _ = slots;
    }
}
