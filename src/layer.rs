//! The layer: a limiter, the key of a request, and what a refused caller sees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::http::HttpResponder;
use crate::limiter::Limiter;
use crate::observe::RefusalWatch;
use crate::service::RateLimit;
use crate::shared::Shared;
use crate::{RefundIf, RefundOnError, RefundUnused, Settle};

/// How many requests of a layer wait at once unless set otherwise.
const DEFAULT_MAX_WAITERS: usize = 1_024;

/// Limits every service that it wraps, all by one limiter.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{Memory, Quota, RateLimitLayer, by_api_key};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let limiter = Memory::new("api", TokenBucket::new(Quota::per_minute(1)));
/// let limit = RateLimitLayer::new(limiter, by_api_key("x-api-key"))
///     .max_wait(Duration::from_millis(500));
///
/// let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new("hello")) });
/// let service = limit.layer(inner);
/// let request = || Request::builder().header("x-api-key", "alice").body(()).unwrap();
/// assert_eq!(service.clone().oneshot(request()).await?.status(), 200);
/// assert_eq!(service.clone().oneshot(request()).await?.status(), 429);
/// assert_eq!(service.oneshot(Request::new(())).await?.status(), 400);
/// # Ok::<(), BoxError>(()) })?;
/// # Ok::<(), BoxError>(())
/// ```
///
/// **Two layers on one request** take from two limits, one after the other. When the inner layer
/// refuses, the outer one has already taken its units, and they stay taken. Use one layer whose
/// limiter decides both: a tuple of algorithms for one key, [`AllAtOnce`](crate::AllAtOnce) or
/// [`AllInTurn`](crate::AllInTurn) for different keys. The [cookbook](crate::guide::cookbook) has
/// examples.
///
/// Clones share the limiter and the number of requests that wait, so a framework may apply the
/// layer to each route. A clone can be set up further; that does not change the others.
pub struct RateLimitLayer<L, K, R> {
    shared: Arc<Shared<L, K, R>>,
}

impl<L: Limiter, K> RateLimitLayer<L, K, HttpResponder> {
    /// Limits requests by `limiter`, each charged to the key that `key` finds in it.
    ///
    /// `key` is usually [`by_head`](crate::by_head) around a closure over the head. It may be a
    /// closure over the whole request, which states the request's type, or
    /// [`Global`](crate::Global), one key for all. See [`KeyExtractor`](crate::KeyExtractor).
    ///
    /// A closure over the head without `by_head` does not compile: "expected closure signature
    /// `for<'a> fn(&'a Request<Body>) -> _`", or "type annotations needed".
    ///
    /// A cost of 0 counts as 1: see [`Charge::cost`](crate::Charge::cost).
    ///
    /// [`HttpResponder`] answers refusals. A service that does not speak HTTP needs another
    /// responder, such as [`Raise`](crate::Raise): see [`respond`](RateLimitLayer::respond).
    #[must_use]
    pub fn new(limiter: L, key: K) -> Self {
        let (limiter, key, respond) = (limiter.into(), key.into(), HttpResponder::new().into());
        let waiters = Arc::new(Semaphore::new(DEFAULT_MAX_WAITERS));
        let (max_wait, watch) = (Duration::ZERO, RefusalWatch::new().into());
        Self { shared: Arc::new(Shared { limiter, key, respond, max_wait, waiters, watch }) }
    }
}

impl<L, K, R> RateLimitLayer<L, K, R> {
    /// Lets a request that does not fit now wait up to `wait` for its slot. Default: 0,
    /// which refuses it.
    ///
    /// A charge's own [`max_wait`](crate::Charge::max_wait) comes first. An algorithm reserves no
    /// further ahead than its horizon, 60 s unless set.
    ///
    /// # Callers who lose patience
    ///
    /// A caller that leaves while it waits passes its slot on. The requests of this process that
    /// wait behind it for the same key, quota and cost move up, in their order. They go earlier
    /// than they were told, never later. The last slot goes back to the store. If the store cannot
    /// take it, since another process has reserved a later one, the next charge of that key takes
    /// it, without a call.
    ///
    /// So a `max_wait` longer than the patience of callers costs no throughput. Still choose it
    /// below that patience, where you know it: a request that would leave before its slot is then
    /// refused at once, and its caller knows when to come back.
    ///
    /// Requests to several limiters at once move up where the keys of all are the same.
    #[must_use]
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { shared: Arc::new(Shared { max_wait: wait, ..Shared::clone(&self.shared) }) }
    }

    /// Lets at most `requests` wait at once; the others are admitted now or
    /// refused. Default: 1,024.
    ///
    /// The clones made from here on, and the services, share this number.
    #[must_use]
    pub fn max_waiters(self, requests: usize) -> Self {
        let waiters = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { waiters, ..Shared::clone(&self.shared) }) }
    }

    /// Sets what a refused caller sees: a [`Respond`](crate::Respond), such as
    /// [`Raise`](crate::Raise) or a closure. Default: [`HttpResponder`].
    ///
    /// It replaces the responder, and with it what the setters below have added: call it first.
    #[must_use]
    pub fn respond<T>(self, respond: T) -> RateLimitLayer<L, K, T> {
        let Shared { limiter, key, max_wait, waiters, watch, .. } = Shared::clone(&self.shared);
        let shared = Shared { limiter, key, respond: respond.into(), max_wait, waiters, watch };
        RateLimitLayer { shared: Arc::new(shared) }
    }

    /// Refunds a request if `condition` holds, a closure over `&Decision` and the response.
    /// Default: what was charged stays.
    ///
    /// See [`Settle`](crate::Settle) for examples, and for what an algorithm can refund.
    #[must_use]
    pub fn refund_if<F>(self, condition: F) -> RateLimitLayer<L, K, Settle<R, RefundIf<F>>> {
        self.settle(RefundIf(condition))
    }

    /// Refunds the units that a request did not use. `used` is a closure over `&Decision` and the
    /// response that returns the units used, or `None` to keep what was charged. Default: what was
    /// charged stays.
    ///
    /// More than was charged counts as what was charged, so any limiter that refunds is enough.
    #[must_use]
    pub fn refund_unused<F>(self, used: F) -> RateLimitLayer<L, K, Settle<R, RefundUnused<F>>> {
        self.settle(RefundUnused(used))
    }

    /// Sets what a request cost in the end: less is refunded, more is taken. `cost` is a closure
    /// over `&Decision` and the response that returns units, or `None` to keep what was charged.
    /// Default: what was charged stays.
    ///
    /// Not every limiter can take more: closures and Redisson's cannot. Before such a limiter every
    /// request is refused as undecided, with an error of kind
    /// [`Configuration`](crate::ErrorKind::Configuration). Use
    /// [`refund_unused`](RateLimitLayer::refund_unused) there.
    #[must_use]
    pub fn actual_cost<F>(self, cost: F) -> RateLimitLayer<L, K, Settle<R, F>> {
        self.settle(cost)
    }

    /// Refunds a request if the inner service fails and `condition` holds, a closure over its
    /// error. Default: what was charged stays.
    ///
    /// For clients, where a failed call is an error: a connection that was refused may cost
    /// nothing.
    ///
    /// ```
    /// use std::io;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_sluice::{Global, LimiterExt, Memory, Quota, Raise, RateLimitLayer};
    /// use tower_sluice::algorithm::TokenBucket;
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let supplier = Memory::new("supplier", TokenBucket::new(Quota::per_minute(5)));
    /// let client = RateLimitLayer::new(supplier.clone(), Global)
    ///     .respond(Raise)
    ///     .refund_on_error(|error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused)
    ///     .layer(service_fn(|_: u64| async {
    ///         Err::<u64, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
    ///     }));
    /// client.oneshot(7).await.unwrap_err();
    /// assert_eq!(supplier.peek("global").await?.remaining(), Some(5));
    /// # Ok::<(), BoxError>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn refund_on_error<F>(
        self,
        condition: F,
    ) -> RateLimitLayer<L, K, Settle<R, RefundOnError<F>>> {
        self.settle(RefundOnError(condition))
    }

    fn settle<F>(self, cost: F) -> RateLimitLayer<L, K, Settle<R, F>> {
        let respond = Settle::new(Arc::clone(&self.shared.respond), cost);
        self.respond(respond)
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
