//! The reports of a limiter in Redis about its calls.

use std::sync::Arc;

#[cfg(feature = "metrics")]
use metrics::{Counter, Histogram};
use tokio::time::Instant;

#[cfg(feature = "metrics")]
use super::catalog;
#[cfg(feature = "metrics")]
use super::recorder::{Handles, Value, counter, histogram};

/// Reports the calls of one limiter. Clones report together.
#[derive(Clone)]
pub(crate) struct CallWatch {
    #[cfg(feature = "metrics")]
    inner: Arc<Inner>,
}

#[cfg(feature = "metrics")]
struct Inner {
    limiter: Arc<str>,
    handles: Handles<CallHandles>,
}

#[cfg(feature = "metrics")]
struct CallHandles {
    batch_size: Histogram,
    call_seconds: Histogram,
    unanswered: Counter,
}

#[cfg(feature = "metrics")]
impl CallWatch {
    pub(crate) fn new(limiter: &Arc<str>) -> Self {
        let inner = Inner { limiter: Arc::clone(limiter), handles: Handles::default() };
        let watch = Self { inner: Arc::new(inner) };
        watch.handles();
        watch
    }

    /// A call with so many charges and settlements leaves.
    pub(crate) fn sent(&self, requests: usize) {
        if let Some(handles) = self.handles() {
            handles.batch_size.record(requests as f64);
        }
    }

    /// A call that left at this instant has an answer.
    pub(crate) fn answered(&self, sent: Instant) {
        if let Some(handles) = self.handles() {
            handles.call_seconds.record(sent.elapsed());
        }
    }

    pub(crate) fn unanswered(&self) {
        if let Some(handles) = self.handles() {
            handles.unanswered.increment(1);
        }
    }

    fn handles(&self) -> Option<&CallHandles> {
        let name = [Value::Name(&self.inner.limiter)];
        self.inner.handles.get(|| CallHandles {
            batch_size: histogram(&catalog::BATCH_SIZE, &name),
            call_seconds: histogram(&catalog::CALL_SECONDS, &name),
            unanswered: counter(&catalog::UNANSWERED_CALLS, &name),
        })
    }
}

#[cfg(not(feature = "metrics"))]
#[allow(clippy::unused_self, reason = "it reports nothing without the feature")]
impl CallWatch {
    pub(crate) fn new(_limiter: &Arc<str>) -> Self {
        Self {}
    }

    pub(crate) fn sent(&self, _requests: usize) {}

    pub(crate) fn answered(&self, _sent: Instant) {}

    pub(crate) fn unanswered(&self) {}
}
