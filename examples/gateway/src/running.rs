//! What is still running: a request until its response has ended, and a tunnel until it is closed.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http::Response;
use http_body::{Frame, SizeHint};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::sent::Unread;
use crate::stalled::Moved;

/// Counts what runs. Clones are one count.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    tracker: TaskTracker,
    ending: CancellationToken,
}

/// Counts as one that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct One {
    _token: TaskTrackerToken,
    moved: Moved,
    unread: Unread,
}

impl Running {
    pub(crate) fn new() -> Self {
        Self { tracker: TaskTracker::new(), ending: CancellationToken::new() }
    }

    /// Counts one more.
    pub(crate) fn begin(&self) -> One {
        let (moved, unread) = (Moved::default(), Unread::default());
        One { _token: self.tracker.token(), moved, unread }
    }

    /// How many run now.
    pub(crate) fn count(&self) -> usize {
        self.tracker.len()
    }

    /// Says that the process ends as soon as nothing runs.
    pub(crate) fn end(&self) {
        self.tracker.close();
        self.ending.cancel();
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
    /// What tells that something of it has moved.
    pub(crate) fn moved(&self) -> Moved {
        self.moved.clone()
    }

    /// Where the rest of its body is kept.
    pub(crate) fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// Counts until the body of `response` has ended.
    pub(crate) fn until_end_of(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Counted { body, one: self }))
    }
}

/// A body that counts as running.
struct Counted {
    body: Body,
    one: One,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.one.unread.read_on();
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            self.one.moved.mark();
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
