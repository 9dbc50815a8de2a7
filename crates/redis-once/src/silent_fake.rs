//! A server for tests, which accepts connections and answers no call.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::connection::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use super::fault::Facts;

/// The server, and the connection to it.
#[derive(Debug, Default)]
pub struct SilentFake {
    is_dead: AtomicBool,
    /// How many calls were recorded as without a reply.
    pub timeouts: AtomicUsize,
}

impl SilentFake {
    /// Cuts the connection.
    pub fn die(&self) {
        self.is_dead.store(true, Relaxed);
    }
}

impl Connections for SilentFake {
    fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
        Some(self)
    }

    fn connection(self: Arc<Self>, _: u16) -> ConnectionFuture {
        Box::pin(async move { Ok(self as Arc<dyn SharedConnection>) })
    }

    fn facts(&self, _: u16) -> Facts {
        Facts { silent_for: Duration::MAX, ..Facts::default() }
    }
}

impl SharedConnection for SilentFake {
    fn send(&self, _: redis::Cmd) -> ReplyFuture {
        Box::pin(pending())
    }

    fn send_all(&self, _: redis::Pipeline) -> RepliesFuture {
        Box::pin(pending())
    }

    fn is_alive(&self) -> bool {
        !self.is_dead.load(Relaxed)
    }

    fn record_timeout(&self) {
        self.timeouts.fetch_add(1, Relaxed);
    }
}
