//! Tells the application what happens to connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;

/// The time for which an event of one kind counts as repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// A change of a pool's connections, for logs and counters. Set a function that gets each of them
/// with [`PoolBuilder::on_event`](super::PoolBuilder::on_event).
///
/// Counters take every event. Logs need not repeat those whose `suppressed` is `None`: an event of
/// this kind, about this server, was told less than a second ago. Otherwise it is the number of
/// those in between.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A connection was made.
    Connected {
        /// The address of the server, without a password.
        address: &'a str,
        /// True if the last attempt failed, or the last connection was lost.
        again: bool,
        /// The number of events that a log left out, if it shows this one.
        suppressed: Option<u64>,
    },
    /// An attempt to connect failed.
    Failed {
        /// The address of the server, without a password.
        address: &'a str,
        /// The reason.
        error: &'a Error,
        /// The number of events that a log left out, if it shows this one.
        suppressed: Option<u64>,
    },
    /// A connection was lost, or given up.
    Lost {
        /// The address of the server, without a password.
        address: &'a str,
        /// The reason.
        reason: &'a str,
        /// The number of events that a log left out, if it shows this one.
        suppressed: Option<u64>,
    },
    /// The sentinels name another primary.
    PrimaryChanged {
        /// The name by which sentinels know the primary.
        service: &'a str,
        /// The address of the new primary.
        address: &'a str,
    },
    /// Hash slots of a cluster have moved.
    SlotsMoved {
        /// The number of slots.
        slots: usize,
    },
}

/// The application's function for events. Default: none.
#[derive(Clone, Default)]
pub(super) struct Listener(Option<Arc<OnEvent>>);

type OnEvent = dyn Fn(&Event<'_>) + Send + Sync;

impl Listener {
    pub(super) fn new(on_event: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(on_event)))
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        if let Some(on_event) = &self.0 {
            on_event(event);
        }
    }
}

/// Tells of the connections to one server.
pub(super) struct ConnectionWatch {
    listener: Listener,
    has_failed: AtomicBool,
    failed: Seldom,
    lost: Seldom,
    again: Seldom,
}

impl ConnectionWatch {
    pub(super) fn new(listener: Listener) -> Self {
        let [failed, lost, again] = [(); 3].map(|()| Seldom::default());
        Self { listener, has_failed: AtomicBool::new(false), failed, lost, again }
    }

    pub(super) fn made(&self, address: &str) {
        let again = self.has_failed.swap(false, Relaxed);
        let suppressed = if again { self.again.pass() } else { Some(0) };
        self.listener.tell(&Event::Connected { address, again, suppressed });
    }

    pub(super) fn failed(&self, address: &str, error: &Error) {
        self.has_failed.store(true, Relaxed);
        let suppressed = self.failed.pass();
        self.listener.tell(&Event::Failed { address, error, suppressed });
    }

    pub(super) fn lost(&self, address: &str, reason: &str) {
        self.has_failed.store(true, Relaxed);
        let suppressed = self.lost.pass();
        self.listener.tell(&Event::Lost { address, reason, suppressed });
    }
}

/// Tells of the hash slots of a cluster that have moved.
pub(super) struct SlotWatch {
    listener: Listener,
    /// The number of moved slots that are not told yet.
    untold: AtomicUsize,
    redirected: Seldom,
}

impl SlotWatch {
    pub(super) fn new(listener: Listener) -> Self {
        Self { listener, untold: AtomicUsize::new(0), redirected: Seldom::default() }
    }

    /// Tells of one moved slot, from a redirect. The redirects of a second are one event; the map
    /// tells all other moved slots.
    pub(super) fn redirected(&self) {
        self.untold.fetch_add(1, Relaxed);
        if self.redirected.pass().is_some() {
            self.mapped(0);
        }
    }

    /// Tells the number of moved slots from the map, without those of redirects.
    pub(super) fn mapped(&self, slots: usize) {
        match self.untold.swap(0, Relaxed) + slots {
            0 => {}
            slots => self.listener.tell(&Event::SlotsMoved { slots }),
        }
    }
}

/// Lets one event of a kind pass each second.
struct Seldom {
    start: Instant,
    /// The earliest instant of the next event, in µs since the start.
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Self {
        Self { start: Instant::now(), next: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }
}

impl Seldom {
    /// Returns the number of suppressed events, or `None` if this one is suppressed.
    fn pass(&self) -> Option<u64> {
        let now = self.start.elapsed().as_micros() as u64;
        let next = self.next.load(Relaxed);
        let after = now + PAUSE.as_micros() as u64;
        let passes =
            next <= now && self.next.compare_exchange(next, after, Relaxed, Relaxed).is_ok();
        if !passes {
            self.suppressed.fetch_add(1, Relaxed);
        }
        passes.then(|| self.suppressed.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_event_passes_each_second_and_the_others_are_counted() {
        let (seldom, mut passed) = (Seldom::default(), Vec::new());
        for _ in 0..25 {
            passed.extend(seldom.pass());
            tokio::time::advance(PAUSE / 10).await;
        }
        assert_eq!(passed, [0, 9, 9]);
    }
}
