//! The charges that wait to be sent, by hash slot: refunds first, then in order of arrival.
//!
//! On a plain server all keys share one slot. A cluster runs a script on keys of one hash slot
//! only, so there each batch takes the charges of one slot.
//!
//!
//! The latest reservation is refunded first: a refund acts on the state that its reservation left,
//! so reservations unwind in the order opposite to that in which they were made, and before new
//! charges change the state. Calls that run side by side could pass each other, so while one
//! carries refunds, all that follow it for the same slot go over its connection (`worker.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use self::slot::{Limits, SlotQueue};
use super::pool::Pool;
use super::reply::ReplyEntry;
use super::request::{Op, Request};
use crate::Error;
use crate::algorithm::Verdict;

mod slot;

/// A request that waits to be sent.
pub(super) struct QueuedRequest {
    pub(super) request: Request,
    pub(super) hash_slot: u16,
    /// The instant by which the caller needs the answer.
    pub(super) deadline: Instant,
    /// Receives the answer. `None`: fire and forget.
    pub(super) reply_to: Option<oneshot::Sender<Result<CompletedRequest, Error>>>,
    /// The share of the queue's capacity that it occupies.
    pub(super) queue_permit: Option<OwnedSemaphorePermit>,
    /// Dropped when the request leaves the queue, which its caller observes.
    pub(super) in_queue: Option<Arc<()>>,
}

impl QueuedRequest {
    /// A request without a receiver for its answer.
    pub(super) fn without_receiver(pool: &Pool, request: Request, deadline: Instant) -> Box<Self> {
        let hash_slot = pool.hash_slot(&request.key);
        Box::new(Self {
            request,
            hash_slot,
            deadline,
            reply_to: None,
            queue_permit: None,
            in_queue: None,
        })
    }

    /// Whether the answer is still wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.reply_to.as_ref().is_none_or(|reply_to| !reply_to.is_closed())
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: Error) {
        if let Some(reply_to) = self.reply_to {
            let _ = reply_to.send(Err(error));
        }
    }

    /// Sends the answer to the caller. Returns the refund of what was taken if the caller has left.
    pub(super) fn complete(
        mut self: Box<Self>,
        entry: ReplyEntry,
        now: i64,
        position: usize,
    ) -> Option<Request> {
        let batch_position = u16::try_from(position).unwrap_or(u16::MAX);
        let reply_to = self.reply_to.take()?;
        let completed = CompletedRequest { queued: self, entry, now, batch_position };
        match reply_to.send(Ok(completed)) {
            Err(Ok(completed)) => completed.into_refund(),
            _ => None,
        }
    }
}

/// A request, and what the script answered.
pub(super) struct CompletedRequest {
    pub(super) queued: Box<QueuedRequest>,
    pub(super) entry: ReplyEntry,
    /// The instant of the decision, in µs since the Unix epoch, by the clock that decided.
    pub(super) now: i64,
    /// The request's position in its batch.
    pub(super) batch_position: u16,
}

impl CompletedRequest {
    /// The request that refunds what was taken, if anything was.
    pub(super) fn into_refund(self) -> Option<Request> {
        let ReplyEntry::Decided(answer) = self.entry else { return None };
        let Op::Check { cost: cost @ 1.., .. } = self.queued.request.op else { return None };
        let (Verdict::Allow | Verdict::Wait(_)) = answer.verdict else { return None };
        let mut request = self.queued.request;
        request.op = Op::Refund { units: cost, cost, mark: answer.mark.unwrap_or_default() };
        Some(request)
    }
}

/// The requests of a call.
#[allow(clippy::vec_box, reason = "requests are passed on many times, and a box moves faster")]
pub(super) type Requests = Vec<Box<QueuedRequest>>;

/// Requests for one hash slot, to be sent in one call.
pub(super) struct Batch {
    pub(super) hash_slot: u16,
    pub(super) requests: Requests,
}

impl Batch {
    /// Whether it carries refunds, which stand in front.
    pub(super) fn has_refunds(&self) -> bool {
        self.requests.first().is_some_and(|first| matches!(first.request.op, Op::Refund { .. }))
    }
}

/// The requests that wait.
pub(super) struct Queue {
    slots: BTreeMap<u16, SlotQueue>,
    /// The slots that a call may be sent for, each once.
    sendable: VecDeque<u16>,
    /// The slots for which a call was just sent.
    just_sent: Vec<u16>,
    /// Counts refunds, so that those of one mark stay apart.
    refund_count: u64,
    limits: Limits,
}

impl Queue {
    pub(super) fn new(max_batch_size: usize) -> Self {
        let (slots, sendable, just_sent) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        let limits = Limits { batch_size: max_batch_size, in_flight: 1 };
        Self { slots, sendable, just_sent, refund_count: 0, limits }
    }

    /// Sets how many calls for one slot may be sent at the same time.
    pub(super) fn set_max_in_flight(&mut self, calls: usize) {
        self.limits.in_flight = calls;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether there may be a batch to send.
    pub(super) fn is_sendable(&self) -> bool {
        !self.sendable.is_empty()
    }

    /// Whether a call for a hash slot carries refunds and has not ended.
    pub(super) fn has_refunds_in_flight(&self, hash_slot: u16) -> bool {
        self.slots.get(&hash_slot).is_some_and(|slot_queue| slot_queue.refund_calls > 0)
    }

    pub(super) fn push(&mut self, queued: Box<QueuedRequest>) {
        let hash_slot = queued.hash_slot;
        let slot_queue = self.slots.entry(hash_slot).or_default();
        slot_queue.has_just_sent = false;
        match &queued.request.op {
            Op::Refund { mark, .. } => {
                self.refund_count += 1;
                slot_queue.refunds.insert((mark.clone(), self.refund_count), queued);
            }
            _ => slot_queue.requests.push_back(queued),
        }
        self.update_sendable(hash_slot);
    }

    /// Lets another call for each slot be sent: what has come of the last ones is dealt with.
    pub(super) fn allow_next(&mut self) {
        for hash_slot in std::mem::take(&mut self.just_sent) {
            if let Some(slot_queue) = self.slots.get_mut(&hash_slot) {
                slot_queue.has_just_sent = false;
            }
            self.update_sendable(hash_slot);
        }
    }

    /// The next batch that needs no further charges: those that wait are half of the unanswered
    /// ones, or as many as a call carries.
    pub(super) fn next_whole_batch(&mut self) -> Option<Batch> {
        let is_whole = |hash_slot: &u16| {
            let slot_queue = self.slots.get(hash_slot);
            slot_queue.is_some_and(|slot_queue| slot_queue.has_whole_batch(&self.limits))
        };
        let index = self.sendable.iter().position(is_whole)?;
        self.sendable.swap(0, index);
        self.next_batch()
    }

    /// The next batch. Requests whose callers have left are dropped.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        while let Some(hash_slot) = self.sendable.pop_front() {
            let slot_queue = self.slots.get_mut(&hash_slot)?;
            slot_queue.is_sendable = false;
            let max_size = slot_queue.max_size(&self.limits);
            let mut requests = Vec::with_capacity(slot_queue.len().min(max_size));
            while requests.len() < max_size
                && let Some(mut queued) = slot_queue.pop()
            {
                (queued.queue_permit, queued.in_queue) = (None, None);
                if queued.is_wanted() {
                    requests.push(queued);
                }
            }
            let batch = Batch { hash_slot, requests };
            if !batch.requests.is_empty() {
                slot_queue.calls_in_flight += 1;
                slot_queue.requests_in_flight += batch.requests.len();
                slot_queue.refund_calls += usize::from(batch.has_refunds());
                slot_queue.has_just_sent = true;
                self.just_sent.push(hash_slot);
                self.update_sendable(hash_slot);
                return Some(batch);
            }
            self.update_sendable(hash_slot);
        }
        None
    }

    /// Records that a call for a slot has ended.
    pub(super) fn call_ended(&mut self, hash_slot: u16, requests: usize) {
        if let Some(slot_queue) = self.slots.get_mut(&hash_slot) {
            slot_queue.calls_in_flight -= 1;
            slot_queue.requests_in_flight -= requests;
        }
        self.update_sendable(hash_slot);
    }

    /// Records that the refunds of a call for a slot are done.
    pub(super) fn refunds_done(&mut self, hash_slot: u16) {
        if let Some(slot_queue) = self.slots.get_mut(&hash_slot) {
            slot_queue.refund_calls -= 1;
        }
        self.update_sendable(hash_slot);
    }

    /// Fails every request that waits.
    pub(super) fn fail_all(&mut self, error: &Error) {
        self.sendable.clear();
        for slot_queue in self.slots.values_mut() {
            slot_queue.is_sendable = false;
            let refunds = std::mem::take(&mut slot_queue.refunds).into_values();
            slot_queue
                .requests
                .drain(..)
                .chain(refunds)
                .for_each(|queued| queued.fail(error.clone()));
        }
        self.slots.retain(|_, slot_queue| !slot_queue.is_idle());
    }

    /// Records whether a call may be sent for a slot, and forgets a slot that is idle.
    fn update_sendable(&mut self, hash_slot: u16) {
        let Some(slot_queue) = self.slots.get(&hash_slot) else { return };
        if slot_queue.is_idle() {
            self.slots.remove(&hash_slot);
        } else if slot_queue.has_work()
            && !slot_queue.is_sendable
            && slot_queue.may_send(&self.limits)
        {
            self.sendable.push_back(hash_slot);
            self.slots.entry(hash_slot).or_default().is_sendable = true;
        }
    }
}

#[cfg(test)]
mod tests;
