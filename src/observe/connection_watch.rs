//! The reports of pools about their connections.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

#[cfg(feature = "metrics")]
use metrics::Counter;

#[cfg(feature = "metrics")]
use super::catalog;
use super::events;
#[cfg(feature = "metrics")]
use super::recorder::{Handles, Value, counter};
use super::seldom::Seldom;
use crate::Error;

/// Reports the connections of one pool. `address` says where they lead, without a password.
#[derive(Default)]
pub(crate) struct ConnectionWatch {
    #[cfg(feature = "metrics")]
    handles: Handles<[Counter; 2]>,
    has_failed: AtomicBool,
    failed: Seldom,
    lost: Seldom,
    again: Seldom,
}

impl ConnectionWatch {
    pub(crate) fn made(&self, address: impl FnOnce() -> String) {
        #[cfg(feature = "metrics")]
        self.count(0);
        match self.has_failed.swap(false, Relaxed) {
            true => self.again.emit(|suppressed| events::connected_again(&address(), suppressed)),
            false => events::connected(&address()),
        }
    }

    pub(crate) fn failed(&self, address: impl FnOnce() -> String, error: &Error) {
        #[cfg(feature = "metrics")]
        self.count(1);
        self.has_failed.store(true, Relaxed);
        self.failed.emit(|suppressed| events::connect_failed(&address(), error, suppressed));
    }

    pub(crate) fn lost(&self, address: impl FnOnce() -> String, reason: &str) {
        self.has_failed.store(true, Relaxed);
        self.lost.emit(|suppressed| events::connection_lost(&address(), reason, suppressed));
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

/// Reports the hash slots of a cluster that have moved.
#[derive(Default)]
pub(crate) struct SlotWatch {
    /// The number of moved slots that are not reported yet.
    unsaid: AtomicUsize,
    redirected: Seldom,
}

impl SlotWatch {
    /// A redirect said that one has moved. A second's redirects are one event; the map tells of all
    /// others.
    pub(crate) fn redirected(&self) {
        self.unsaid.fetch_add(1, Relaxed);
        self.redirected.emit(|_| self.mapped(0));
    }

    /// The map said that so many have moved, besides those of redirects.
    pub(crate) fn mapped(&self, slots: usize) {
        match self.unsaid.swap(0, Relaxed) + slots {
            0 => {}
            slots => events::slots_moved(slots),
        }
    }
}
