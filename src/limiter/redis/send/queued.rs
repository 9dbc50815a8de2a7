//! A request on its way: the receiver of its answer, its deadline, and the answer.

use std::mem;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::super::client::Pool;
use super::super::client::fault::{Progress, Stage};
use super::super::script::{Op, ReplyEntry, Request};
use crate::Error;
use crate::algorithm::Verdict;
use crate::settlement::SettlementSender;

/// A request that waits to be sent.
pub(crate) struct QueuedRequest {
    pub(crate) request: Request,
    pub(super) hash_slot: u16,
    /// The instant by which the caller needs the answer.
    pub(super) deadline: Instant,
    pub(super) reply_to: ReplyTo,
    /// The share of the queue's capacity that it occupies.
    pub(super) queue_permit: Option<OwnedSemaphorePermit>,
    /// Its stage, which the caller reads. `None` outside a cluster.
    pub(super) progress: Option<Arc<Progress>>,
}

/// Receives the answer to a request.
pub(super) enum ReplyTo {
    /// The caller, who may leave.
    Caller(oneshot::Sender<Result<CompletedRequest, Error>>),
    Settlement(SettlementSender),
    /// None: fire and forget.
    Nobody,
}

impl QueuedRequest {
    /// A request without a receiver for its answer.
    pub(crate) fn without_receiver(pool: &Pool, request: Request, deadline: Instant) -> Box<Self> {
        let hash_slot = pool.hash_slot(&request.key);
        Box::new(Self {
            request,
            hash_slot,
            deadline,
            reply_to: ReplyTo::Nobody,
            queue_permit: None,
            progress: None,
        })
    }

    /// Records its stage.
    pub(super) fn record(&self, stage: Stage) {
        if let Some(progress) = &self.progress {
            progress.set(stage);
        }
    }

    /// Returns whether the answer is still wanted at this instant. A process that stood still may
    /// find charges whose time is over: no caller would hold the units that they take.
    pub(super) fn is_wanted(&self, now: Instant) -> bool {
        match &self.reply_to {
            ReplyTo::Caller(caller) => !caller.is_closed() && now < self.deadline,
            ReplyTo::Settlement(_) | ReplyTo::Nobody => true,
        }
    }

    /// Returns whether it settles a reservation, so that no caller waits for it.
    pub(super) fn is_settlement(&self) -> bool {
        !matches!(self.reply_to, ReplyTo::Caller(_))
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: Error) {
        match self.reply_to {
            ReplyTo::Caller(caller) => drop(caller.send(Err(error))),
            ReplyTo::Settlement(sender) => sender.end(Err(error)),
            ReplyTo::Nobody => {}
        }
    }

    /// Sends the answer to the caller. If the caller has left, returns the refund of the units that
    /// were taken.
    pub(super) fn complete(
        mut self: Box<Self>,
        entry: ReplyEntry,
        now: i64,
        position: usize,
    ) -> Option<Request> {
        let batch_position = u16::try_from(position).unwrap_or(u16::MAX);
        let caller = match mem::replace(&mut self.reply_to, ReplyTo::Nobody) {
            ReplyTo::Caller(caller) => caller,
            ReplyTo::Settlement(sender) => {
                sender.end(Ok(entry.refunded().cast_unsigned()));
                return None;
            }
            ReplyTo::Nobody => return None,
        };
        let completed = CompletedRequest { queued: self, entry, now, batch_position };
        match caller.send(Ok(completed)) {
            Err(Ok(completed)) => completed.into_refund(),
            _ => None,
        }
    }
}

/// A request, and the answer of the script.
pub(crate) struct CompletedRequest {
    pub(crate) queued: Box<QueuedRequest>,
    pub(crate) entry: ReplyEntry,
    /// The instant of the decision, in µs since the Unix epoch, by the clock that decided.
    pub(crate) now: i64,
    /// The request's position in its batch.
    pub(crate) batch_position: u16,
}

impl CompletedRequest {
    /// Converts it to the refund of the units that were taken, if there are any.
    pub(super) fn into_refund(self) -> Option<Request> {
        let ReplyEntry::Decided(answer) = self.entry else { return None };
        let Op::Check { cost: cost @ 1.., .. } = self.queued.request.op else { return None };
        let (Verdict::Allow | Verdict::Wait(_)) = answer.verdict else { return None };
        let mut request = self.queued.request;
        request.op = Op::Refund { units: cost, cost, mark: answer.mark.unwrap_or_default() };
        Some(request)
    }
}
