//! The requests of one hash slot that wait.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use super::super::batch::Requests;
use super::super::deadline::Stage;
use super::super::queued::QueuedRequest;
use super::super::request::Op;
use super::super::slot::Partition;
use crate::algorithm::Mark;

/// The requests of one hash slot that wait.
#[derive(Default)]
pub(super) struct SlotQueue {
    requests: VecDeque<Box<QueuedRequest>>,
    /// By the mark of each reservation: marks of one key grow from one to the next.
    refunds: BTreeMap<(Mark, u64), Box<QueuedRequest>>,
    /// The calls that carry refunds and have not ended.
    pub(super) refund_calls: usize,
    /// The partition that it waits in.
    pub(super) partition: Option<Partition>,
}

impl SlotQueue {
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.refunds.len()
    }

    pub(super) fn has_work(&self) -> bool {
        self.len() > 0
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.has_work() && self.refund_calls == 0
    }

    /// `number` keeps refunds of one mark apart.
    pub(super) fn push(&mut self, queued: Box<QueuedRequest>, number: u64) {
        match &queued.request.op {
            Op::Refund { mark, .. } => {
                self.refunds.insert((mark.clone(), number), queued);
            }
            _ => self.requests.push_back(queued),
        }
    }

    /// The next requests, at most `size`: refunds first, the latest before all. Those that nobody
    /// waits for any more are dropped.
    pub(super) fn take(&mut self, size: usize) -> Requests {
        let (mut requests, now) = (Vec::with_capacity(size.min(self.len())), Instant::now());
        while requests.len() < size
            && let Some(mut queued) = self.pop()
        {
            queued.queue_permit = None;
            queued.record(Stage::Sent);
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
