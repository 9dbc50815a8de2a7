//! Bodies that count the cost of their frames, and settle it when they end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::tower::settle::{SettleGuard, Unsettled};

/// Returns the bytes of data in a frame: for
/// [`settle_later`](crate::RateLimitLayer::settle_later). Headers, trailers and protocol overhead
/// do not count.
#[must_use]
pub fn count_bytes<D: Buf>(frame: &Frame<D>) -> u64 {
    frame.data_ref().map_or(0, |data| data.remaining() as u64)
}

pin_project! {
    /// A body that counts the units of its frames, and settles them when it ends.
    ///
    /// [`RateLimitLayer::settle_later`](crate::RateLimitLayer::settle_later) wraps the body of each
    /// response in it. To count an upload, wrap the body of the request with [`CountedBody::new`],
    /// and take the charge out of a [`SettleHandle`](crate::respond::SettleHandle).
    ///
    /// It settles once: when the body has ended or failed, or when it is dropped because the caller
    /// has left. A frame counts when the server takes it, so a caller that leaves may not have
    /// received the last ones.
    ///
    /// [Tokens and bytes][tokens] counts uploads so.
    ///
    /// [tokens]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/tokens_and_bytes/
    pub struct CountedBody<B, F> {
        #[pin]
        body: B,
        count: Arc<F>,
        // `None`: it was settled, or nothing was taken.
        bill: Option<SettleGuard>,
    }
}

impl<B, F> CountedBody<B, F> {
    /// Counts the frames of a body by `count`, a closure that returns the units of a frame, and
    /// settles `unsettled` with the sum. `None`: the body is not counted.
    pub fn new(body: B, count: F, unsettled: Option<Unsettled>) -> Self {
        Self::shared(body, Arc::new(count), unsettled)
    }

    pub(super) fn shared(body: B, count: Arc<F>, unsettled: Option<Unsettled>) -> Self {
        let mut bill = unsettled.map(|unsettled| SettleGuard::new(Some(unsettled)));
        // A body without frames costs nothing.
        bill.iter_mut().for_each(|bill| bill.add(0));
        Self { body, count, bill }
    }

    /// Begins with the full cost, for a body that settles what was charged.
    pub(super) fn at_full_cost(mut self) -> Self {
        self.bill.iter_mut().for_each(SettleGuard::add_cost);
        self
    }
}

/// A body that is not counted, for an answer without the service, such as that of a server.
impl<B: Body + From<&'static str>> From<&'static str>
    for CountedBody<B, fn(&Frame<B::Data>) -> u64>
{
    fn from(text: &'static str) -> Self {
        Self::new(text.into(), |_| 0, None)
    }
}

impl<B, F> Body for CountedBody<B, F>
where
    B: Body,
    F: Fn(&Frame<B::Data>) -> u64,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.body.as_mut().poll_frame(cx));
        if let Some(bill) = this.bill {
            let is_over = match &polled {
                Some(Ok(frame)) => {
                    bill.add((this.count)(frame));
                    // If a body says that it has ended, it may not be polled again.
                    this.body.is_end_stream()
                }
                Some(Err(_)) | None => true,
            };
            if is_over {
                *this.bill = None;
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

debug_by_name!([B, F] CountedBody<B, F>: bill);
