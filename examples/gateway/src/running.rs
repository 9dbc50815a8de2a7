//! The requests that run until their responses have ended, and the tunnels until they are closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use axum::body::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::connections::Caller;
use crate::exchange::Exchange;
use crate::sent;

/// Counts what runs. Clones are one count.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    tracker: TaskTracker,
    ending: CancellationToken,
    is_ending: Arc<AtomicBool>,
}

/// A request that counts as running until it is dropped.
pub(crate) struct One {
    _token: TaskTrackerToken,
    exchange: Arc<Exchange>,
}

impl Running {
    pub(crate) fn new() -> Self {
        let (tracker, ending) = (TaskTracker::new(), CancellationToken::new());
        Self { tracker, ending, is_ending: Arc::default() }
    }

    /// Counts one more, until what it returns is dropped.
    pub(crate) fn begin(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    /// Returns the number of those that run now.
    pub(crate) fn count(&self) -> usize {
        self.tracker.len()
    }

    /// Says that the process ends as soon as nothing runs.
    /// Returns whether nobody has said so before.
    pub(crate) fn end(&self) -> bool {
        self.tracker.close();
        let is_first = !self.is_ending.swap(true, Relaxed);
        self.ending.cancel();
        is_first
    }

    /// Returns true if the process is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    /// Waits until the process is about to end.
    pub(crate) async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// Waits until nothing runs, after [`end`](Running::end).
    pub(crate) async fn idle(&self) {
        self.tracker.wait().await;
    }
}

impl One {
    /// A request of `caller` begins to run.
    pub(crate) fn new(caller: &Arc<Caller>, version: Version) -> Self {
        caller.begin(version == Version::HTTP_2);
        let exchange = Exchange::new(Arc::clone(caller));
        Self { _token: caller.running.begin(), exchange }
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Counts until the body of `response` has ended.
    pub(crate) fn until_end_of<B: Body>(self, response: Response<B>) -> Response<Counted<B>> {
        response.map(|body| Counted { body, one: self, part: None })
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.exchange.caller.end();
    }
}

/// A body that counts as running.
pub(crate) struct Counted<B> {
    body: B,
    one: One,
    /// The number of its part that waits for the caller.
    part: Option<u64>,
}

impl<B> Counted<B> {
    fn took_part(&mut self) {
        if let Some(number) = self.part.take() {
            self.one.exchange.caller.took_part(number);
        }
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        self.took_part();
        sent::read_on(&self.one.exchange);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    /// A part has left when the next one is asked for.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.took_part();
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(_)) = frame {
            self.one.exchange.moves();
            self.part = Some(self.one.exchange.caller.has_part());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
