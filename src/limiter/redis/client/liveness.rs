//! The replies of the servers, and the late timers of this process.
//!
//! A call without a reply has one of two causes: a silent server, or a process that is too busy to
//! read. Replies to other calls and late timers show which one (`fault.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::slot::HASH_SLOTS;
use super::times::{BUSY_FACTOR, MAX_SILENCE};

/// The observations of all clones of a pool.
#[derive(Clone)]
pub(crate) struct Liveness {
    /// The numbers of replies in time. A plain server has one counter. A cluster has one for each
    /// hash slot, and one for all at the end.
    replies: Arc<[AtomicU64]>,
    /// The times at which a call of each hash slot first missed its deadline after the last reply.
    /// They are in µs since `start`; 0: no call did. Only a cluster needs them.
    first_missed: Arc<[AtomicU64]>,
    start: Instant,
    /// The last time that a timer fired late, in µs since `start`; 0: never.
    last_late_timer: Arc<AtomicU64>,
    is_clustered: bool,
}

impl Liveness {
    /// Makes the observations of one server, which has all hash slots.
    pub(super) fn of_server() -> Self {
        Self::new(1, 1, false)
    }

    /// Makes the observations of a cluster: each hash slot may have another server.
    pub(super) fn of_cluster() -> Self {
        Self::new(HASH_SLOTS + 1, HASH_SLOTS, true)
    }

    fn new(replies: u16, first_missed: u16, is_clustered: bool) -> Self {
        let (replies, first_missed) = (counters(replies), counters(first_missed));
        let (start, last_late_timer) = (Instant::now(), Arc::default());
        Self { replies, first_missed, start, last_late_timer, is_clustered }
    }

    /// Returns the number of replies in time to calls of `hash_slot`.
    pub(crate) fn replies(&self, hash_slot: u16) -> u64 {
        self.replies[usize::from(hash_slot)].load(Relaxed)
    }

    /// Counts a reply that came in time.
    pub(crate) fn record_reply(&self, hash_slot: u16) {
        self.replies[usize::from(hash_slot)].fetch_add(1, Relaxed);
        if self.is_clustered {
            self.replies[self.replies.len() - 1].fetch_add(1, Relaxed);
        }
        self.record_late_reply(hash_slot);
    }

    /// Records a reply that came too late for its callers: the server is not silent.
    pub(crate) fn record_late_reply(&self, hash_slot: u16) {
        if self.is_clustered {
            self.first_missed[usize::from(hash_slot)].store(0, Relaxed);
        }
    }

    /// Returns the number of replies in time from all servers.
    pub(crate) fn all_replies(&self) -> u64 {
        self.replies[self.replies.len() - 1].load(Relaxed)
    }

    /// Records that a call of `hash_slot` has just missed its deadline. Returns whether calls of
    /// this slot have had no reply for long. In a cluster, one server may be silent alone.
    pub(crate) fn is_silent(&self, hash_slot: u16) -> bool {
        let now = self.now();
        let first_missed = &self.first_missed[usize::from(hash_slot)];
        let since = match first_missed.compare_exchange(0, now, Relaxed, Relaxed) {
            Ok(_) => now,
            Err(since) => since,
        };
        let is_busy = self.last_late_timer.load(Relaxed) >= since;
        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR } else { 1 };
        now - since.min(now) >= max_silence.as_micros() as u64
    }

    /// Records that a timer has just fired late.
    pub(crate) fn record_busy(&self) {
        self.last_late_timer.fetch_max(self.now(), Relaxed);
    }

    /// Microseconds since the start, at least 1.
    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64 + 1
    }

    /// Returns whether a timer has fired late since `start`.
    ///
    /// In a cluster, a late timer counts for [`MAX_SILENCE`] longer. The replies of one hash slot
    /// are too rare to show that the process is busy.
    pub(crate) fn was_busy_since(&self, start: Instant) -> bool {
        let last_late_timer = self.last_late_timer.load(Relaxed);
        let since = start.saturating_duration_since(self.start);
        let while_counted = if self.is_clustered { MAX_SILENCE } else { Duration::ZERO };
        let since = since.saturating_sub(while_counted).as_micros() as u64;
        last_late_timer > 0 && since <= last_late_timer
    }
}

fn counters(count: u16) -> Arc<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}
