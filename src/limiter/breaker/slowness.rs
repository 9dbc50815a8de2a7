//! The watch that tells a slow call from a busy process.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
use crate::limiter::grace_period::GracePeriod;
use crate::limiter::runtime::sleep_until;

/// Watches a call that is under way.
pub(super) struct SlownessWatch {
    // On the heap, since only calls of a breaker that asks for it have one.
    verdict: Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>,
    is_over: bool,
    is_slow: bool,
}

impl SlownessWatch {
    /// Of a call that begins now, and is slow after this time.
    pub(super) fn new(slow_after: Duration) -> Self {
        let begun = Instant::now();
        let verdict = async move {
            // An instant has an end.
            let Some(deadline) = begun.checked_add(slow_after) else {
                return std::future::pending().await;
            };
            let grace_period = GracePeriod::new(deadline);
            sleep_until(deadline)?.await;
            // A busy process fires timers late, or before it reads the answer.
            grace_period.catch_up().await;
            Ok(!grace_period.is_late())
        };
        Self { verdict: Box::pin(verdict), is_over: false, is_slow: false }
    }

    /// Called when the call has been polled and is still under way.
    ///
    /// # Errors
    ///
    /// Outside of a runtime.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        if !self.is_over
            && let Poll::Ready(is_slow) = self.verdict.as_mut().poll(cx)
        {
            self.is_over = true;
            self.is_slow = is_slow?;
        }
        Ok(())
    }

    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }
}

impl fmt::Debug for SlownessWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlownessWatch").field("is_slow", &self.is_slow).finish_non_exhaustive()
    }
}
