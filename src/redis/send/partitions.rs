//! The partitions of the queue: one for each connection to a cluster, or one for a server.
//!
//! The hash slots of a partition take turns. A call takes at most half of the charges without an
//! answer, so that the server works on one call while this process reads the answers to the other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use redis_once::calls::Partition;

use super::window::CallWindow;

/// The fewest charges without an answer that two calls share: with 16 tasks, these make a third
/// more decisions than one. Charges of one key are split only above a full call: the script counts
/// them together.
const MIN_SHARED: usize = 8;

/// The same in a cluster, whose other masters work meanwhile.
const MIN_SHARED_IN_CLUSTER: usize = 24;

/// The partitions with requests to send, or with a call in flight.
pub(super) struct Partitions {
    partitions: BTreeMap<Partition, PartitionState>,
    /// The partitions that may send a call, each once.
    sendable: VecDeque<Partition>,
    limits: CallBounds,
}

/// The bounds of a partition's calls.
struct CallBounds {
    /// The most requests in a call.
    batch_size: usize,
    /// The calls that may be in flight at the same time.
    window: CallWindow,
    /// The fewest charges that two calls share.
    min_shared: usize,
    /// True if the last call of several requests had one key.
    is_hot: bool,
}

/// The waiting requests of a partition, and those in flight.
#[derive(Default)]
struct PartitionState {
    /// The hash slots for which a call may be sent, each once.
    hash_slots: VecDeque<u16>,
    /// The requests of these slots.
    waiting: usize,
    calls_in_flight: usize,
    /// The number of requests in those calls.
    requests_in_flight: usize,
    /// True while a connection is awaited.
    is_connecting: bool,
    is_sendable: bool,
}

impl Partitions {
    pub(super) fn new(batch_size: usize, max_in_flight: usize, is_routed: bool) -> Self {
        let window = CallWindow::new(max_in_flight);
        let min_shared = if is_routed { MIN_SHARED_IN_CLUSTER } else { MIN_SHARED };
        let limits = CallBounds { batch_size, window, min_shared, is_hot: false };
        Self { partitions: BTreeMap::new(), sendable: VecDeque::new(), limits }
    }

    /// Adds a slot with `requests` waiting requests.
    pub(super) fn push(&mut self, partition: Partition, hash_slot: u16, requests: usize) {
        let state = self.partitions.entry(partition).or_default();
        state.hash_slots.push_back(hash_slot);
        state.waiting += requests;
        self.update(partition);
    }

    /// Records that requests have arrived. Counts `requests` more in a slot that waits.
    pub(super) fn arrived(&mut self, partition: Partition, requests: usize) {
        if let Some(state) = self.partitions.get_mut(&partition) {
            state.waiting += requests;
        }
        self.update(partition);
    }

    /// Returns the next partition, and its next slot.
    pub(super) fn next(&mut self) -> Option<(Partition, u16)> {
        loop {
            let partition = *self.sendable.front()?;
            let state = self.partitions.entry(partition).or_default();
            if state.may_send(&self.limits) {
                return state.hash_slots.front().map(|hash_slot| (partition, *hash_slot));
            }
            self.sendable.pop_front();
            state.is_sendable = false;
            if state.is_idle() {
                self.partitions.remove(&partition);
            }
        }
    }

    /// The most requests in the next call of a partition.
    pub(super) fn max_size(&self, partition: Partition) -> usize {
        let state = self.partitions.get(&partition);
        state.map_or(self.limits.batch_size, |state| state.max_size(&self.limits))
    }

    /// Removes the next slot of a partition.
    pub(super) fn pop(&mut self, partition: Partition) -> Option<u16> {
        self.partitions.get_mut(&partition)?.hash_slots.pop_front()
    }

    /// Records that `requests` requests of a partition no longer wait.
    pub(super) fn shrink(&mut self, partition: Partition, requests: usize) {
        if let Some(state) = self.partitions.get_mut(&partition) {
            state.waiting -= requests;
        }
    }

    /// Removes all slots of a partition.
    pub(super) fn take_hash_slots(&mut self, partition: Partition) -> VecDeque<u16> {
        let Some(state) = self.partitions.get_mut(&partition) else { return VecDeque::new() };
        state.waiting = 0;
        std::mem::take(&mut state.hash_slots)
    }

    /// Records that a call of `requests` requests is sent, perhaps all of one key.
    pub(super) fn call_begins(&mut self, partition: Partition, requests: usize, is_one_key: bool) {
        if requests > 1 {
            self.limits.is_hot = is_one_key;
        }
        let state = self.partitions.entry(partition).or_default();
        state.calls_in_flight += 1;
        state.requests_in_flight += requests;
        self.update(partition);
    }

    /// Records that a call of `requests` requests has ended. `took` is the time until its answer.
    pub(super) fn call_ended(
        &mut self,
        partition: Partition,
        requests: usize,
        took: Option<Duration>,
    ) {
        if let Some(state) = self.partitions.get_mut(&partition) {
            if let Some(took) = took {
                self.limits.window.answered(took, state.calls_in_flight);
            }
            state.calls_in_flight -= 1;
            state.requests_in_flight -= requests;
        }
        self.update(partition);
    }

    /// Sends nothing for a partition while a connection is awaited.
    pub(super) fn set_connecting(&mut self, partition: Partition, is_connecting: bool) {
        if let Some(state) = self.partitions.get_mut(&partition) {
            state.is_connecting = is_connecting;
        }
        self.update(partition);
    }

    fn update(&mut self, partition: Partition) {
        let Some(state) = self.partitions.get_mut(&partition) else { return };
        if state.may_send(&self.limits) {
            if !std::mem::replace(&mut state.is_sendable, true) {
                self.sendable.push_back(partition);
            }
        } else if state.is_idle() {
            self.partitions.remove(&partition);
        }
    }
}

impl PartitionState {
    fn is_idle(&self) -> bool {
        self.hash_slots.is_empty()
            && self.calls_in_flight == 0
            && !self.is_connecting
            && !self.is_sendable
    }

    /// Returns true if a call may be sent now.
    fn may_send(&self, limits: &CallBounds) -> bool {
        let may_begin = !self.is_connecting && self.calls_in_flight < limits.window.calls();
        !self.hash_slots.is_empty() && may_begin
    }

    /// The most requests in the next call.
    fn max_size(&self, limits: &CallBounds) -> usize {
        match self.is_shared(limits) {
            true => self.unanswered().div_ceil(2).min(limits.batch_size),
            false => limits.batch_size,
        }
    }

    /// Returns true if two calls share the requests, half each.
    fn is_shared(&self, limits: &CallBounds) -> bool {
        let fewest = if limits.is_hot { limits.batch_size + 1 } else { limits.min_shared };
        limits.window.calls() > 1 && self.unanswered() >= fewest
    }

    /// Returns the number of requests without an answer.
    fn unanswered(&self) -> usize {
        self.waiting + self.requests_in_flight
    }
}

#[cfg(test)]
mod tests;
