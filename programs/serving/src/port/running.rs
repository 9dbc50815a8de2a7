//! The requests that run until their responses have ended, and the tunnels until they are closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;

use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use tokio_util::bytes::Buf;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::port::connections::{Caller, millis, now};
use crate::port::exchange::Exchange;
use crate::port::pace::Pace;
use crate::port::sent;

/// Counts what runs. Clones are one count.
#[derive(Clone, Debug, Default)]
pub struct Running {
    tracker: TaskTracker,
    ending: CancellationToken,
    is_ending: Arc<AtomicBool>,
}

/// A request that runs, until the end of its answer.
pub(crate) struct RunningRequest {
    answer: Arc<RunningAnswer>,
    exchange: Arc<Exchange>,
}

/// An answer, which counts as running until all of its parts have left. It holds nothing of the
/// request: HTTP/2 drops parts under a lock that the end of a request's body needs.
pub(crate) struct RunningAnswer {
    _token: TaskTrackerToken,
    caller: Arc<Caller>,
    /// The number of parts that wait for the caller.
    parts: AtomicUsize,
    /// The last instant at which something of a part left, in milliseconds.
    taken: AtomicU64,
    /// The pace at which parts leave.
    pace: Pace,
}

impl RunningAnswer {
    fn has_part(&self) {
        self.takes_part();
        if self.parts.fetch_add(1, Relaxed) == 0 {
            self.pace.begin();
            self.caller.has_parts();
        }
    }

    /// Something of a part has left.
    pub(crate) fn takes_part(&self) {
        self.taken.store(now(), Relaxed);
        self.caller.takes_part();
    }

    fn took_part(&self) {
        if self.parts.fetch_sub(1, Relaxed) == 1 {
            self.pace.end();
            self.caller.took_parts();
        }
    }

    /// Returns true if the caller has taken nothing of a part for too long, or takes too little of
    /// an answer that `is_slow` does not excuse.
    pub(crate) fn takes_nothing(&self, is_slow: bool) -> bool {
        let Caller { timeouts, running, .. } = &*self.caller;
        let nothing = self.taken.load(Relaxed).saturating_add(millis(timeouts.body(running)));
        let too_little = if is_slow { u64::MAX } else { self.pace.deadline(timeouts) };
        self.parts.load(Relaxed) > 0 && nothing.min(too_little) <= now()
    }
}

impl Drop for RunningAnswer {
    fn drop(&mut self) {
        self.caller.end();
    }
}

/// A part of an answer, until it has left: by HTTP/2 it waits until the caller wants it.
pub(crate) struct AnswerPart {
    bytes: Bytes,
    answer: Arc<RunningAnswer>,
}

impl AnswerPart {
    fn new(bytes: Bytes, answer: &Arc<RunningAnswer>) -> Self {
        answer.has_part();
        Self { bytes, answer: Arc::clone(answer) }
    }
}

impl Buf for AnswerPart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.answer.pace.moves(count);
        self.answer.takes_part();
    }
}

impl Drop for AnswerPart {
    fn drop(&mut self) {
        self.answer.took_part();
    }
}

impl Running {
    /// Counts one more, until what it returns is dropped.
    pub fn begin(&self) -> TaskTrackerToken {
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
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    /// Waits until the process is about to end.
    pub async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// Waits until nothing runs, after [`end`](Running::end).
    pub(crate) async fn idle(&self) {
        self.tracker.wait().await;
    }
}

impl RunningRequest {
    /// A request of `caller` begins to run.
    pub(crate) fn new(caller: &Arc<Caller>, version: Version) -> Self {
        caller.begin(version == Version::HTTP_2);
        let (parts, taken) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (_token, of) = (caller.running.begin(), Arc::clone(caller));
        let answer =
            Arc::new(RunningAnswer { _token, caller: of, parts, taken, pace: Pace::default() });
        Self { answer, exchange: Exchange::new(Arc::clone(caller)) }
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    pub(crate) fn answer(&self) -> &Arc<RunningAnswer> {
        &self.answer
    }

    /// Counts until the body of `response` has ended.
    pub(crate) fn until_end_of<B: Body>(self, response: Response<B>) -> Response<RunningBody<B>> {
        response.map(|body| RunningBody { body, one: self })
    }
}

/// A body that counts as running.
pub(crate) struct RunningBody<B> {
    body: B,
    one: RunningRequest,
}

impl<B> Drop for RunningBody<B> {
    fn drop(&mut self) {
        sent::read_on(&self.one.exchange);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RunningBody<B> {
    type Data = AnswerPart;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerPart>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_some() {
            self.one.exchange.moves();
        }
        let of_one =
            |frame: Frame<Bytes>| frame.map_data(|bytes| AnswerPart::new(bytes, &self.one.answer));
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

    use http_body_util::Full;

    use super::*;
    use crate::port::timeouts::Timeouts;

    /// By HTTP/2 the last part waits until the caller wants it, and its body is gone by then.
    #[tokio::test]
    async fn a_request_runs_until_its_last_part_has_left() {
        let timeouts = Timeouts { body_timeout: Duration::ZERO, ..Timeouts::default() };
        let caller = Caller::new("127.0.0.1:1".parse().unwrap(), Running::default(), timeouts);
        let one = RunningRequest::new(&caller, Version::HTTP_2);
        let answer = Arc::downgrade(one.answer());
        let takes_nothing = || answer.upgrade().is_some_and(|answer| answer.takes_nothing(true));
        let mut body = one.until_end_of(Response::new(Full::from("whole"))).into_body();
        assert!(!takes_nothing());
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let mut part = frame.unwrap().unwrap().into_data().ok().unwrap();
        drop(body);
        assert!(caller.is_running() && takes_nothing());
        part.advance(5);
        drop(part);
        assert!(!caller.is_running() && !takes_nothing());
    }
}
