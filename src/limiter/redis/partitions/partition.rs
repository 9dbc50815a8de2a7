//! One partition, and how many requests its next call takes.
//!
//! Were all charges in one call, this process would wait while the server works, and the server
//! while this process reads the answers. So a call takes at most half of the charges that have no
//! answer. The next call follows once a charge has come or the answers of a call are read: were two
//! sent at once, the server would answer both at once. From then on the server works on one call
//! while this process reads the answers to the other. Of a burst that no charge follows, the second
//! half waits for one reply, or for a few milliseconds (`worker/hold.rs`).

use std::collections::VecDeque;

/// Fewer charges without an answer than this go in one call: a call costs as much as some charges.
const MIN_SHARED: usize = 24;

/// What bounds the calls of a partition.
pub(super) struct Limits {
    /// The most requests in a call.
    pub(super) batch_size: usize,
    /// The most calls at the same time.
    pub(super) in_flight: usize,
}

/// What waits in a partition, and what is in flight.
#[derive(Default)]
pub(super) struct PartitionState {
    /// The hash slots that a call may be sent for, each once.
    pub(super) slots: VecDeque<u16>,
    /// The requests of these slots.
    pub(super) waiting: usize,
    pub(super) calls_in_flight: usize,
    /// The requests that those calls carry.
    pub(super) requests_in_flight: usize,
    /// Whether nothing has happened since the last call was sent.
    pub(super) has_just_sent: bool,
    /// Whether a connection is awaited.
    pub(super) is_connecting: bool,
    pub(super) is_sendable: bool,
    pub(super) is_whole: bool,
}

impl PartitionState {
    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_empty()
            && self.calls_in_flight == 0
            && !self.is_connecting
            && !self.is_sendable
            && !self.is_whole
    }

    /// Whether a call may be sent now.
    pub(super) fn may_send(&self, limits: &Limits) -> bool {
        let is_held = self.has_just_sent && self.is_shared(limits);
        let may_begin = !self.is_connecting && self.calls_in_flight < limits.in_flight;
        !self.slots.is_empty() && may_begin && !is_held
    }

    /// The most requests in the next call.
    pub(super) fn max_size(&self, limits: &Limits) -> usize {
        match self.is_shared(limits) {
            true => self.unanswered().div_ceil(2).min(limits.batch_size),
            false => limits.batch_size,
        }
    }

    /// Whether the next call needs no further requests.
    pub(super) fn has_whole_batch(&self, limits: &Limits) -> bool {
        self.is_shared(limits) && self.waiting >= self.max_size(limits)
    }

    /// Whether two calls take half of the requests each.
    fn is_shared(&self, limits: &Limits) -> bool {
        limits.in_flight > 1 && self.unanswered() >= MIN_SHARED
    }

    /// The requests that have no answer.
    fn unanswered(&self) -> usize {
        self.waiting + self.requests_in_flight
    }
}
