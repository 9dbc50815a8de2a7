//! Reads on the bodies of refused requests, so that their callers see the answer.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use http::Request;
use http::header::EXPECT;
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::tower::reject::Drain;

const MAX_BYTES: usize = 64 << 20;

const MAX_TIME: Duration = Duration::from_secs(2);

const MAX_BODIES: usize = 256;

/// Reads on the bodies of refused requests: see
/// [`RateLimitLayer::drain_refused`](crate::RateLimitLayer::drain_refused).
#[derive(Clone)]
pub struct DrainRefused {
    places: Arc<Semaphore>,
}

impl DrainRefused {
    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_BODIES)) }
    }
}

impl<B: Body + Default + Send + 'static> Drain<Request<B>> for DrainRefused {
    fn drain(&self, request: &mut Request<B>) {
        // A caller that expects 100 has not begun to send, and reading would ask it to.
        if request.headers().contains_key(EXPECT) || request.body().is_end_stream() {
            return;
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        if let (Ok(place), Ok(runtime)) = (place, Handle::try_current()) {
            let body = mem::take(request.body_mut());
            runtime.spawn(async move {
                let _ = timeout(MAX_TIME, drain(body)).await;
                drop(place);
            });
        }
    }
}

/// Reads a body to its end, or to the bound.
async fn drain<B: Body>(body: B) {
    let (mut body, mut bytes) = (pin!(body), 0);
    // The length alone, since a frame or an error may not be `Send`.
    let length = |frame: Option<Result<Frame<B::Data>, B::Error>>| {
        Some(frame?.ok()?.data_ref().map_or(0, Buf::remaining))
    };
    while let Some(more) = poll_fn(|cx| body.as_mut().poll_frame(cx).map(length)).await {
        bytes += more;
        if bytes > MAX_BYTES {
            return;
        }
        // A body that is always ready must leave room for others, and for the timeout.
        yield_now().await;
    }
}

debug_by_name!([] DrainRefused: places);
