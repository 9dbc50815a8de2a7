//! The layer: a limiter, whom to charge, and what a refused caller sees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::service::RateLimit;
use crate::shared::Shared;

/// How many requests of a layer wait at once unless set otherwise.
const WAITERS: usize = 1_024;

/// Limits every service that it wraps, all by one limiter.
///
/// A clone shares everything, so that a framework may apply the layer to each route apart.
pub struct RateLimitLayer<L, K, R> {
    shared: Arc<Shared<L, K, R>>,
}

impl<L, K, R> RateLimitLayer<L, K, R> {
    pub(crate) fn with_responder(limiter: L, key: K, respond: R) -> Self {
        let waiters = Arc::new(Semaphore::new(WAITERS));
        Self::of(Shared { limiter, key, respond, max_wait: Duration::ZERO, waiters })
    }

    fn of(shared: Shared<L, K, R>) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Takes the settings out of a layer that is still being built.
    fn settings(self) -> Shared<L, K, R> {
        Arc::into_inner(self.shared).expect("a layer is set up before it is cloned or applied")
    }

    /// Lets a request that does not fit now wait up to `wait` for its slot. Default: 0, which refuses it.
    ///
    /// A charge's own [`max_wait`](crate::Charge::max_wait) comes first. An algorithm reserves no further ahead than its
    /// horizon, 60 s unless set.
    ///
    /// # Panics
    ///
    /// If the layer has been cloned or applied.
    #[must_use]
    pub fn max_wait(self, wait: Duration) -> Self {
        Self::of(Shared { max_wait: wait, ..self.settings() })
    }

    /// Lets at most `requests` wait at once; the others are admitted now or refused. Default: 1,024.
    ///
    /// # Panics
    ///
    /// If the layer has been cloned or applied.
    #[must_use]
    pub fn max_waiters(self, requests: usize) -> Self {
        let waiters = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        Self::of(Shared { waiters, ..self.settings() })
    }

    /// Sets what a refused caller sees. Default: [`HttpResponder`](crate::HttpResponder).
    ///
    /// # Panics
    ///
    /// If the layer has been cloned or applied.
    #[must_use]
    pub fn respond<T>(self, respond: T) -> RateLimitLayer<L, K, T> {
        let Shared { limiter, key, max_wait, waiters, .. } = self.settings();
        RateLimitLayer::of(Shared { limiter, key, respond, max_wait, waiters })
    }
}

impl<S, L, K, R> Layer<S> for RateLimitLayer<L, K, R> {
    type Service = RateLimit<S, L, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl<L, K, R> Clone for RateLimitLayer<L, K, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<L: fmt::Debug, K, R: fmt::Debug> fmt::Debug for RateLimitLayer<L, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt_as("RateLimitLayer", f).finish_non_exhaustive()
    }
}
