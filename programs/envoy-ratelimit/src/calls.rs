//! The calls that run: their number, the bytes of their messages, and their time are bounded.
//!
//! A connection may have an eighth as many calls as are still free, and as many bytes. So callers
//! that want all leave room for a new one, until they have dozens of connections.
//!
//! Streams stay open as long as their callers want. They have bounds of their own, so that they
//! keep no call out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use http::Request;
use http_body::{Frame, SizeHint};
use serving::port::{Caller, Sent};
use tonic::Status;
use tower::Service;

use crate::grpc;

/// The most calls at once, and the most streams beside them.
const MOST_CALLS: usize = 1_024;
const MOST_STREAMS: usize = 128;
/// A connection may have as many as are free, divided by this.
const SHARE: usize = 8;
/// The most bytes of the messages of all calls, but for the begin of each, and those of streams.
const MOST_BYTES: usize = 16 << 20;
const MOST_BYTES_OF_STREAMS: usize = 1 << 20;
/// The bytes of each message that do not count, which are all of most messages.
const BEGIN: usize = 16 << 10;

/// The numbers of all callers, or those of one connection.
#[derive(Debug, Default)]
struct HeldCounts {
    calls: CallCounts,
    streams: CallCounts,
}

#[derive(Debug, Default)]
struct CallCounts {
    calls: AtomicUsize,
    bytes: AtomicUsize,
}

impl HeldCounts {
    fn of(&self, is_stream: bool) -> &CallCounts {
        if is_stream { &self.streams } else { &self.calls }
    }
}

/// Adds to both counts, unless more than `most` would be held, or the connection holds more than is
/// free, divided by `share`.
fn take(all: &AtomicUsize, own: &AtomicUsize, most: usize, share: usize, count: usize) -> bool {
    let (before, held) = (all.fetch_add(count, Relaxed), own.fetch_add(count, Relaxed));
    let free = most.saturating_sub(before);
    let fits = count == 0 || count <= free && held <= free / share;
    if !fits {
        give_back(all, own, count);
    }
    fits
}

fn give_back(all: &AtomicUsize, own: &AtomicUsize, count: usize) {
    all.fetch_sub(count, Relaxed);
    own.fetch_sub(count, Relaxed);
}

/// Routes whose calls are bounded. Clones share the bounds.
#[derive(Clone)]
pub(crate) struct Calls {
    held: Arc<HeldCounts>,
    routes: Router,
    /// The time until an answer begins.
    time: Duration,
    refuse: fn(&Status) -> Response,
}

impl Calls {
    /// Bounds the calls of `routes`. `refuse` answers those that find no room.
    pub(crate) fn new(routes: Router, time: Duration, refuse: fn(&Status) -> Response) -> Self {
        Self { held: Arc::default(), routes, time, refuse }
    }

    /// Other routes, with bounds of their own.
    pub(crate) fn beside(&self, routes: Router, refuse: fn(&Status) -> Response) -> Self {
        Self { held: Arc::default(), routes, refuse, ..self.clone() }
    }
}

impl Service<Request<Sent>> for Calls {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let (refuse, time) = (self.refuse, self.time);
        let exchange = request.body().exchange();
        let is_stream = grpc::is_stream(request.uri().path());
        let Some(call) = RunningCall::begin(&self.held, Arc::clone(&exchange.caller), is_stream)
        else {
            // Nothing of it is kept until its message ends.
            exchange.cut();
            return Box::pin(async move { Ok(refuse(&full())) });
        };
        let of_request = Arc::clone(&call);
        let mut request = request.map(|body| Body::new(Message { body, call: of_request }));
        request.extensions_mut().insert(Arc::clone(&call));
        let answering = self.routes.call(request);
        Box::pin(async move {
            match tokio::time::timeout(time, answering).await {
                Ok(answer) => answer
                    .map(|answer| answer.map(|body| Body::new(CallBody { body, _call: call }))),
                Err(_) => Ok(refuse(&Status::deadline_exceeded("the call takes too long"))),
            }
        })
    }
}

pub(crate) fn full() -> Status {
    Status::resource_exhausted("too many calls at once")
}

/// A call, until its message and its answer are gone. The request has it among its extensions.
pub(crate) struct RunningCall {
    all: Arc<HeldCounts>,
    caller: Arc<Caller>,
    is_stream: bool,
    /// The bytes of the message so far.
    seen: AtomicUsize,
    /// Those of them that count.
    bytes: AtomicUsize,
}

impl RunningCall {
    fn begin(all: &Arc<HeldCounts>, caller: Arc<Caller>, is_stream: bool) -> Option<Arc<Self>> {
        let (seen, bytes) = Default::default();
        let most = if is_stream { MOST_STREAMS } else { MOST_CALLS };
        let own = caller.own::<HeldCounts>().of(is_stream);
        let is_taken = take(&all.of(is_stream).calls, &own.calls, most, SHARE, 1);
        is_taken.then(|| Arc::new(Self { all: Arc::clone(all), caller, is_stream, seen, bytes }))
    }

    /// All of its kind, and those of its connection.
    fn counts(&self) -> (&CallCounts, &CallCounts) {
        (self.all.of(self.is_stream), self.caller.own::<HeldCounts>().of(self.is_stream))
    }

    /// Counts bytes of the message, or of what is made of it.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let (all, own) = self.counts();
        let most = if self.is_stream { MOST_BYTES_OF_STREAMS } else { MOST_BYTES };
        let before = self.seen.fetch_add(bytes, Relaxed);
        let bytes = bytes.saturating_sub(BEGIN.saturating_sub(before));
        let is_taken = take(&all.bytes, &own.bytes, most, 1, bytes);
        if is_taken {
            self.bytes.fetch_add(bytes, Relaxed);
        }
        is_taken
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let (all, own) = self.counts();
        give_back(&all.calls, &own.calls, 1);
        give_back(&all.bytes, &own.bytes, self.bytes.load(Relaxed));
    }
}

/// The message of a call, whose bytes count.
struct Message {
    body: Sent,
    call: Arc<RunningCall>,
}

impl http_body::Body for Message {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        match bytes.is_none_or(|bytes| self.call.has_room(bytes.len())) {
            true => Poll::Ready(frame),
            false => Poll::Ready(Some(Err(full().into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The answer of a call.
struct CallBody {
    body: Body,
    _call: Arc<RunningCall>,
}

impl http_body::Body for CallBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
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
    use super::*;

    #[test]
    fn each_may_hold_as_much_as_is_free() {
        let all = AtomicUsize::new(0);
        let held = |own: &AtomicUsize| {
            while take(&all, own, 90, 1, 1) {}
            own.load(Relaxed)
        };
        let (first, second, third) = Default::default();
        assert_eq!(held(&first), 46);
        assert_eq!(held(&second), 23);
        assert_eq!(held(&third), 11);
        assert!(!take(&all, &third, 90, 1, 11));
        assert!(!take(&all, &third, 90, 8, 1));
        assert!(take(&all, &first, 90, 8, 0), "what does not count needs no room");
        assert_eq!(all.load(Relaxed), 80);
    }
}
