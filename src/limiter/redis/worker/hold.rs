//! How long charges are held back while a server works on others.
//!
//! Half of the charges that wait leave in one call. The other half waits for its answer, so that
//! the server works on one half while this process reads the answers to the other (`partitions/`).
//! If none comes, the server is far away, or the connection is dead: then waiting gains nothing.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Charges are held back no longer than this.
const MAX_HOLD: Duration = Duration::from_millis(5);

/// Since when no answer has come to the calls that left.
pub(super) struct Hold {
    /// When the first call left after the last answer.
    first_sent: Option<Instant>,
    /// It is set anew only after it has fired: most holds end before.
    timer: Pin<Box<Sleep>>,
    is_set: bool,
}

impl Hold {
    pub(super) fn new() -> Self {
        Self { first_sent: None, timer: Box::pin(sleep_until(Instant::now())), is_set: false }
    }

    /// Records that a call leaves.
    pub(super) fn call_left(&mut self) {
        self.first_sent.get_or_insert_with(Instant::now);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.first_sent.is_some()
    }

    /// Records that nothing is held back any more.
    pub(super) fn ended(&mut self) {
        self.first_sent = None;
    }

    /// Waits until no answer has come for too long. Never ends while nothing is held back.
    pub(super) async fn end(&mut self) {
        let Some(first_sent) = self.first_sent else { return pending().await };
        let end = first_sent + MAX_HOLD;
        while Instant::now() < end {
            if !self.is_set {
                self.timer.as_mut().reset(end);
                self.is_set = true;
            }
            self.timer.as_mut().await;
            self.is_set = false;
        }
    }
}
