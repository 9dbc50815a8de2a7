//! What is still running: a request until its response has ended, and a tunnel until it is closed.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Counts what runs. Clones are one count.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    tracker: TaskTracker,
    ending: CancellationToken,
}

/// Counts as one that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct One(#[expect(dead_code, reason = "dropped at the end")] TaskTrackerToken);

impl Running {
    pub(crate) fn new() -> Self {
        Self { tracker: TaskTracker::new(), ending: CancellationToken::new() }
    }

    /// Counts one more.
    pub(crate) fn begin(&self) -> One {
        One(self.tracker.token())
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
    /// Counts until the body of `response` has ended.
    pub(crate) fn until_end_of(self, response: Response<Body>) -> Response<Body> {
        if response.body().is_end_stream() {
            return response;
        }
        response.map(|body| Body::new(Counted { body, _one: self }))
    }
}

/// A body that counts as running.
struct Counted {
    body: Body,
    _one: One,
}

impl http_body::Body for Counted {
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
