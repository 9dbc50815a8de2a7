//! The requests that run until their responses have ended, and the tunnels until they are closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;

use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use tokio_util::bytes::Buf;
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

/// A request that counts as running until it is dropped, and all parts of its answer.
pub(crate) struct One {
    _token: TaskTrackerToken,
    exchange: Arc<Exchange>,
}

/// A part of an answer, until it has left: by HTTP/2 it waits until the caller wants it.
pub(crate) struct Part {
    bytes: Bytes,
    one: Arc<One>,
}

impl Part {
    fn new(bytes: Bytes, one: &Arc<One>) -> Self {
        one.exchange.has_part();
        Self { bytes, one: Arc::clone(one) }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.one.exchange.takes_part();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.one.exchange.took_part();
    }
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
        response.map(|body| Counted { body, one: Arc::new(self) })
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
    one: Arc<One>,
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        sent::read_on(&self.one.exchange);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Part;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_some() {
            self.one.exchange.moves();
        }
        let of_one = |frame: Frame<Bytes>| frame.map_data(|bytes| Part::new(bytes, &self.one));
        Poll::Ready(frame.map(|frame| frame.map(of_one)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body as Text;

    use super::*;
    use crate::settings::Timeouts;

    /// By HTTP/2 the last part waits until the caller wants it, and its body is gone by then.
    #[tokio::test]
    async fn a_request_runs_until_its_last_part_has_left() {
        let timeouts = Timeouts { body: Duration::ZERO, ..Timeouts::default() };
        let caller = Caller::new("127.0.0.1:1".parse().unwrap(), Running::new(), timeouts);
        let one = One::new(&caller, Version::HTTP_2);
        let exchange = Arc::clone(one.exchange());
        let mut body = one.until_end_of(Response::new(Text::from("whole"))).into_body();
        assert!(!exchange.takes_nothing());
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let mut part = frame.unwrap().unwrap().into_data().ok().unwrap();
        drop(body);
        assert!(caller.is_running() && exchange.takes_nothing());
        part.advance(5);
        drop(part);
        assert!(!caller.is_running() && !exchange.takes_nothing());
    }
}
