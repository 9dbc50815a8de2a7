//! A service that insists on the tower contract.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tower::{BoxError, Service};

/// A service that insists on the tower contract: only the very value that was polled
/// ready is called.
#[derive(Default)]
pub struct Strict {
    ready: bool,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    polled: AtomicU64,
    called: AtomicU64,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, seen: Arc::clone(&self.seen) }
    }
}

impl Service<&'static str> for Strict {
    type Response = &'static str;
    type Error = BoxError;
    type Future = Ready<Result<&'static str, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.seen.polled.fetch_add(1, Relaxed);
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: &'static str) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.seen.called.fetch_add(1, Relaxed);
        ready(match request {
            "fail" => Err("the inner service failed".into()),
            request => Ok(request),
        })
    }
}

impl Strict {
    pub fn polled(&self) -> u64 {
        self.seen.polled.load(Relaxed)
    }

    pub fn called(&self) -> u64 {
        self.seen.called.load(Relaxed)
    }
}
