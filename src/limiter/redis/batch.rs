//! What is sent together: a batch for each hash slot, and the call that carries the batches.

use super::queued::QueuedRequest;
use super::request::Op;
use super::slot::Partition;

/// The requests of a call.
#[allow(clippy::vec_box, reason = "requests are passed on many times, and a box moves faster")]
pub(super) type Requests = Vec<Box<QueuedRequest>>;

/// Requests for one hash slot, to be sent in one script call.
pub(super) struct Batch {
    pub(super) hash_slot: u16,
    pub(super) requests: Requests,
}

impl Batch {
    /// Whether it carries refunds.
    pub(super) fn has_refunds(&self) -> bool {
        self.requests.iter().any(|queued| matches!(queued.request.op, Op::Refund { .. }))
    }
}

/// The batches that leave together over one connection: several only in a cluster.
pub(super) struct Call {
    pub(super) partition: Partition,
    /// How many requests it carries.
    pub(super) requests: usize,
    pub(super) batches: Vec<Batch>,
}

impl Call {
    pub(super) fn has_refunds(&self) -> bool {
        self.batches.iter().any(Batch::has_refunds)
    }
}
