//! A request on its way: who waits for its answer, until when, and what the answer was.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::deadline::{Progress, Stage};
use super::pool::Pool;
use super::reply::ReplyEntry;
use super::request::{Op, Request};
use crate::Error;
use crate::algorithm::Verdict;

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
    /// Shows the caller how far it has come, in a cluster.
    pub(super) progress: Option<Arc<Progress>>,
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
            progress: None,
        })
    }

    /// Records how far it has come.
    pub(super) fn record(&self, stage: Stage) {
        if let Some(progress) = &self.progress {
            progress.set(stage);
        }
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
