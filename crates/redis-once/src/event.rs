//! Tells the application what happens to connections.

use std::sync::Arc;

use super::error::Error;

/// A change of a pool's connections, for logs and counters. Set a function that gets each of them
/// with [`PoolBuilder::on_event`](super::PoolBuilder::on_event).
///
/// While a server is away, there are up to ten events a second about it. A counter takes each of
/// them; a log may leave some out.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A connection was made.
    Connected {
        /// The address of the server, without a password.
        address: &'a str,
        /// True if the last attempt failed, or the last connection was lost.
        again: bool,
    },
    /// An attempt to connect failed.
    Failed {
        /// The address of the server, without a password.
        address: &'a str,
        /// The reason.
        error: &'a Error,
    },
    /// A connection was lost, or given up.
    Lost {
        /// The address of the server, without a password.
        address: &'a str,
        /// The reason.
        reason: &'a str,
    },
    /// The sentinels name another primary.
    PrimaryChanged {
        /// The name by which sentinels know the primary.
        service: &'a str,
        /// The address of the new primary.
        address: &'a str,
    },
    /// Hash slots of a cluster have moved. The first redirect tells at once, and the next map tells
    /// of all others.
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
