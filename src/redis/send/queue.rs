//! The charges that wait to be sent, by hash slot: refunds first, then in the order of arrival.
//!
//! A cluster runs a script only on keys of one hash slot, so each batch takes the charges of one.
//!
//! The latest reservation is refunded first, and before new charges change the state. While a call
//! has refunds, all later calls for its hash slot use its connection (`worker.rs`); in a cluster
//! they wait for its end, since it may be redirected.

use std::collections::{BTreeMap, VecDeque};
use std::iter;

use redis_once::calls::Partition;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::Pool;
use super::super::script::Op;
use super::batch::{Batch, Call, QueuedRequest, Requests};
use super::partitions::Partitions;
use crate::algorithm::Mark;
use crate::core::Error;

/// The requests that wait.
pub(super) struct Queue {
    pool: Pool,
    queues: BTreeMap<u16, SlotQueue>,
    pub(super) partitions: Partitions,
    /// Counts requests, so that refunds with the same mark are distinct.
    count: u64,
}

/// The waiting requests of one hash slot.
#[derive(Default)]
struct SlotQueue {
    requests: VecDeque<Box<QueuedRequest>>,
    /// The refunds, ordered by the mark of the reservation: the marks of one key grow.
    refunds: BTreeMap<(Mark, u64), Box<QueuedRequest>>,
    /// The number of calls with refunds that have not ended.
    refund_calls: usize,
    /// The partition in which it waits.
    partition: Option<Partition>,
}

impl Queue {
    pub(super) fn new(pool: Pool, max_batch_size: usize, max_in_flight: usize) -> Self {
        let partitions = Partitions::new(max_batch_size, max_in_flight, pool.client.is_routed());
        Self { pool, queues: BTreeMap::new(), partitions, count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns true if a call for a hash slot has refunds and has not ended.
    pub(super) fn has_refunds_in_flight(&self, hash_slot: u16) -> bool {
        self.queues.get(&hash_slot).is_some_and(|slot_queue| slot_queue.refund_calls > 0)
    }

    pub(super) fn push(&mut self, queued: Box<QueuedRequest>) {
        self.push_all(iter::once(queued));
    }

    pub(super) fn push_all(&mut self, arrivals: impl Iterator<Item = Box<QueuedRequest>>) {
        let mut arrivals = arrivals.peekable();
        while let Some(first) = arrivals.next() {
            let hash_slot = first.hash_slot;
            let slot_queue = self.queues.entry(hash_slot).or_default();
            let (before, mut next) = (slot_queue.len(), Some(first));
            while let Some(queued) = next {
                self.count += 1;
                slot_queue.push(queued, self.count);
                next = arrivals.next_if(|queued| queued.hash_slot == hash_slot);
            }
            if let Some(partition) = slot_queue.partition {
                let requests = slot_queue.len() - before;
                self.partitions.arrived(partition, requests);
            } else if let Some(partition) = self.update(hash_slot) {
                self.partitions.arrived(partition, 0);
            }
        }
    }

    /// Returns the partition whose call is next, and a hash slot in it.
    pub(super) fn next_partition(&mut self) -> Option<(Partition, u16)> {
        loop {
            let (partition, hash_slot) = self.partitions.next()?;
            if self.pool.client.partition(hash_slot) == partition {
                return Some((partition, hash_slot));
            }
            // The cluster has moved the slot to another server.
            self.pop(partition);
            self.update(hash_slot);
        }
    }

    /// Takes the next call of a partition, if any request is left. Drops requests whose callers
    /// have left.
    pub(super) fn take_call(&mut self, partition: Partition) -> Option<Call> {
        let (mut batches, mut room) = (SmallVec::new(), self.partitions.max_size(partition));
        let max_size = room;
        while room > 0
            && let Some(hash_slot) = self.pop(partition)
        {
            if self.pool.client.partition(hash_slot) == partition
                && let Some(slot_queue) = self.queues.get_mut(&hash_slot)
            {
                let batch = Batch::new(hash_slot, slot_queue.take(room));
                room -= batch.requests.len();
                slot_queue.refund_calls += usize::from(batch.has_refunds());
                batches.extend(Some(batch).filter(|batch| !batch.requests.is_empty()));
            }
            self.update(hash_slot);
        }
        let requests = max_size - room;
        (requests > 0).then(|| {
            let keys = || batches.iter().flat_map(Batch::keys);
            let is_one_key = keys().all(|key| Some(key) == keys().next());
            self.partitions.call_begins(partition, requests, is_one_key);
            Call { partition, requests, batches }
        })
    }

    /// Records that the refunds of a call for a slot are done.
    pub(super) fn refunds_done(&mut self, hash_slot: u16) {
        if let Some(slot_queue) = self.queues.get_mut(&hash_slot) {
            slot_queue.refund_calls -= 1;
        }
        self.update(hash_slot);
    }

    /// Lets each slot of a partition wait where it belongs now. With an error, fails every waiting
    /// request of those that stay.
    pub(super) fn regroup(&mut self, partition: Partition, error: Option<&Error>) {
        for hash_slot in self.partitions.take_hash_slots(partition) {
            let Some(slot_queue) = self.queues.get_mut(&hash_slot) else { continue };
            slot_queue.partition = None;
            if let Some(error) = error
                && self.pool.client.partition(hash_slot) == partition
            {
                let waiting = slot_queue.take(usize::MAX);
                waiting.into_iter().for_each(|queued| queued.fail(error.clone()));
            }
            self.update(hash_slot);
        }
    }

    /// Removes the next slot of a partition.
    fn pop(&mut self, partition: Partition) -> Option<u16> {
        let hash_slot = self.partitions.pop(partition)?;
        if let Some(slot_queue) = self.queues.get_mut(&hash_slot) {
            slot_queue.partition = None;
            self.partitions.shrink(partition, slot_queue.len());
        }
        Some(hash_slot)
    }

    /// Lets a slot wait in its partition if a call may be sent for it. Returns the partition if the
    /// slot starts to wait. Forgets an idle slot.
    fn update(&mut self, hash_slot: u16) -> Option<Partition> {
        let slot_queue = self.queues.get_mut(&hash_slot)?;
        let waits_for_refunds = slot_queue.refund_calls > 0 && self.pool.client.is_routed();
        if slot_queue.is_idle() {
            self.queues.remove(&hash_slot);
        } else if slot_queue.len() > 0 && slot_queue.partition.is_none() && !waits_for_refunds {
            let partition = self.pool.client.partition(hash_slot);
            slot_queue.partition = Some(partition);
            self.partitions.push(partition, hash_slot, slot_queue.len());
            return Some(partition);
        }
        None
    }
}

impl SlotQueue {
    fn len(&self) -> usize {
        self.requests.len() + self.refunds.len()
    }

    fn is_idle(&self) -> bool {
        self.len() == 0 && self.refund_calls == 0
    }

    /// Adds a request. `number` distinguishes refunds with the same mark.
    fn push(&mut self, queued: Box<QueuedRequest>, number: u64) {
        match &queued.request.op {
            Op::Refund { mark, .. } => {
                self.refunds.insert((mark.clone(), number), queued);
            }
            _ => self.requests.push_back(queued),
        }
    }

    /// Takes the next requests, at most `size`: refunds first, and among these the latest first.
    /// Drops requests whose answer is no longer wanted.
    fn take(&mut self, size: usize) -> Requests {
        let (mut requests, now) = (Vec::with_capacity(size.min(self.len())), Instant::now());
        while requests.len() < size
            && let Some(mut queued) = self.pop()
        {
            queued.queue_place = None;
            if queued.is_wanted(now) {
                requests.push(queued);
            }
        }
        requests
    }

    fn pop(&mut self) -> Option<Box<QueuedRequest>> {
        let refund = self.refunds.pop_last().map(|(_, queued)| queued);
        refund.or_else(|| self.requests.pop_front())
    }
}

#[cfg(test)]
mod tests;
