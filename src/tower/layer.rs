//! The layer: a limiter, the key of a request, and what a refused caller sees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::http::{DrainRefused, HttpResponder, ObeyUpstream};
use crate::limiter::hold::SettleBy;
use crate::limiter::{DEFAULT_MAX_WAITERS, Limiter};
use crate::tower::Settle;
use crate::tower::service::RateLimit;
use crate::tower::settle::{Answer, Later, NotSet};
use crate::tower::shared::{Hooks, Shared};

/// Limits every service that it wraps. All of them share one limiter.
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
/// limiter decides about both limits: see [several limits]. Clones share the limiter and the number
/// of requests that wait.
///
/// [several limits]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/several_limits/
#[doc(alias("GovernorLayer", "throttle"))]
#[must_use]
pub struct RateLimitLayer<L, K, R, H = Hooks> {
    shared: Arc<Shared<L, K, R, H>>,
}

impl<L: Limiter, K> RateLimitLayer<L, K, HttpResponder> {
    /// Limits requests by `limiter`. Each request is charged to the key that `key` finds in it.
    ///
    /// `key` is usually [`by_head`](crate::by_head) around a closure over the head, which does not
    /// compile without it: "expected closure signature `for<'a> fn(&'a Request<Body>) -> _`", or
    /// "type annotations needed". See [`KeyExtractor`](crate::key::KeyExtractor).
    ///
    /// [`HttpResponder`] answers refusals. A service that does not speak HTTP needs another
    /// responder: see [`respond`](RateLimitLayer::respond).
    pub fn new(limiter: L, key: K) -> Self {
        let (limiter, key, respond) = (limiter.into(), key.into(), HttpResponder::new().into());
        let waiters = Arc::new(Semaphore::new(DEFAULT_MAX_WAITERS));
        let (hooks, max_wait, watch) = (Hooks::default(), Duration::ZERO, Arc::default());
        let shared = Shared { limiter, key, respond, hooks, max_wait, waiters, watch };
        Self { shared: Arc::new(shared) }
    }
}

impl<L, K, R, F, W: Clone, D: Clone> RateLimitLayer<L, K, R, Hooks<F, W, D>> {
    /// Sets the longest time that a request waits for its slot if it does not fit now. Default: 0,
    /// which refuses it.
    ///
    /// A [`max_wait`](crate::Charge::max_wait) of the charge takes precedence. No wait is longer
    /// than the algorithm's horizon, 60 s by default.
    ///
    /// # Callers who lose patience
    ///
    /// When a caller leaves while it waits, the later requests of this process for the same keys,
    /// quota and cost move up. So a `max_wait` longer than the patience of callers costs no
    /// throughput. If you know that patience, still choose a shorter `max_wait`: a request that
    /// would leave before its slot is then refused at once.
    #[doc(alias("delay", "queue"))]
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { shared: Arc::new(Shared { max_wait: wait, ..self.into_shared() }) }
    }

    /// Sets how many requests may wait at once; all others are admitted now or refused. Default:
    /// 1,024. A request that may wait counts from its call, while the limiter decides about it.
    #[doc(alias("max_queue", "queue_size"))]
    pub fn max_waiters(self, requests: usize) -> Self {
        let waiters = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { waiters, ..self.into_shared() }) }
    }

    /// Sets what a refused caller sees: a [`Respond`](crate::respond::Respond), such as
    /// [`Raise`](crate::respond::Raise) or a closure. Default: [`HttpResponder`].
    pub fn respond<T>(self, respond: T) -> RateLimitLayer<L, K, T, Hooks<F, W, D>> {
        let Shared { limiter, key, hooks, max_wait, waiters, watch, .. } = self.into_shared();
        let respond = respond.into();
        let shared = Shared { limiter, key, respond, hooks, max_wait, waiters, watch };
        RateLimitLayer { shared: Arc::new(shared) }
    }

    /// Settles each request that took units, once it is answered: `settle` is a closure over the
    /// [`Answer`](crate::respond::Answer) of the inner service. It returns a [`Settle`], which has
    /// examples. Default: what was charged stays, unless
    /// [`settle_later`](RateLimitLayer::settle_later) is set. A second call does not compile.
    ///
    /// The inner service may fail: around a client, a refused connection may cost nothing, with a
    /// closure `|answer: Answer<u64, io::Error>| match answer.result() { .. }`.
    #[doc(alias("refund", "penalty", "actual_cost", "login"))]
    pub fn settle<T, Res, E>(self, settle: T) -> RateLimitLayer<L, K, R, Hooks<T, W, D>>
    where
        T: Fn(Answer<'_, Res, E>) -> Settle,
        F: NotSet,
    {
        self.with_hooks(|hooks| Hooks {
            settle: settle.into(),
            later: hooks.later,
            drain: hooks.drain,
        })
    }

    /// Obeys an upstream that says stop, around a client: when a response
    /// [asks to wait](crate::upstream::retry_after), the key of the request is
    /// [paused](crate::LimiterExt::pause) for that time, at most for `longest`, for all processes
    /// that share the limiter. Default: the layer looks at no response. A closure of
    /// [`settle`](RateLimitLayer::settle) may return [`Settle::Pause`](crate::Settle::Pause) in its
    /// place.
    ///
    /// - **Trust**: whoever answers the client can stop its key for `longest`, so set this only
    ///   where the upstream is trusted. If a client calls several upstreams, give each a key of its own.
    /// - **Calls during the time** wait for its end if their `max_wait` allows it. Others are refused
    ///   with the rest of it as their `Retry-After`.
    /// - A call that took no units pauses nothing: one that [`FailOpen`](crate::FailOpen) or a shadow
    ///   admitted, or whose handler took its units.
    /// - A gRPC status in trailers does not count.
    /// - The service must return an `http::Response`. The guide's page on [clients] has an example,
    ///   and the line that makes one of reqwest's response.
    ///
    /// [clients]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/clients/
    #[doc(alias("retry_after", "backoff"))]
    pub fn obey_upstream(
        self,
        longest: Duration,
    ) -> RateLimitLayer<L, K, R, Hooks<ObeyUpstream, W, D>>
    where
        F: NotSet,
    {
        self.with_hooks(|hooks| Hooks {
            settle: ObeyUpstream::new(longest).into(),
            later: hooks.later,
            drain: hooks.drain,
        })
    }

    /// Lets the handler of a request settle it, or the body of its response: for costs that are
    /// known only after the response has begun. Default: the layer settles. A second call does not
    /// compile. The guide has [tokens and bytes][tokens].
    ///
    /// | `by` | the request costs |
    /// |---|---|
    /// | [`InHandler`](crate::respond::InHandler) | what its handler says |
    /// | [`count_bytes`](crate::respond::count_bytes) | the bytes of the response's body |
    /// | [`WithBody`](crate::respond::WithBody) | what was charged, when the body has ended: for a [`Concurrency`](crate::algorithm::Concurrency) |
    /// | a closure over `&Frame` | the sum of the units that it returns for each frame of the body, of data or trailers |
    ///
    /// **In the handler**: each request has a [`SettleHandle`](crate::respond::SettleHandle) in its
    /// extensions. A handler that takes the units out of it settles them, even later and from
    /// another task. Then the body is not counted.
    ///
    /// **By the body**: when the body ends, fails or is dropped, the unused units are refunded, or
    /// the missing ones are taken. So a caller that leaves in the middle pays for what it was sent.
    /// A response without frames costs nothing.
    ///
    /// A closure of [`settle`](RateLimitLayer::settle) sees each response whose handler took no
    /// units. The body is counted if it returns [`Settle::Later`].
    ///
    /// **A caller that leaves before the response** drops no body: the whole charge stays, and only
    /// units of a `Concurrency` are released. If that may take seconds, let the handler settle.
    ///
    /// **While a body runs, held units are renewed**: see [`Hold`](crate::limiter::Hold). The units
    /// of a connection that is upgraded (101) are released with its response, unless the handler
    /// takes them out of its handle: [`Unsettled::hold`](crate::respond::Unsettled::hold).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use tower_sluice::crates::http_body::Frame;
    /// use tower_sluice::{RateLimitLayer, by_head};
    ///
    /// # let limiter = tower_sluice::testing::Scripted::new();
    /// let layer = RateLimitLayer::new(limiter, by_head(|head| head.header("x-user")));
    /// // An event of a stream is a frame of its own, and costs a unit. A comment costs nothing.
    /// let layer = layer.settle_later(|frame: &Frame<Bytes>| {
    ///     u64::from(frame.data_ref().is_some_and(|event| !event.starts_with(b":")))
    /// });
    /// # let _ = layer;
    /// ```
    ///
    /// [tokens]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/tokens_and_bytes/
    #[doc(alias("llm", "sse", "stream", "bandwidth", "count_body"))]
    pub fn settle_later<T>(self, by: T) -> RateLimitLayer<L, K, R, Hooks<F, Later<T>, D>>
    where
        L: Limiter + Send + Sync + 'static,
        W: NotSet,
    {
        let settle_by: Arc<dyn SettleBy> = Arc::clone(&self.shared.limiter) as _;
        self.with_hooks(|hooks| Hooks {
            settle: hooks.settle,
            later: Later { by: by.into(), settle_by },
            drain: hooks.drain,
        })
    }

    /// Reads on the body of a refused request in the background, and drops what it reads. Default:
    /// the body is dropped at once.
    ///
    /// Use it for uploads over HTTP/1.1, whose callers would see a reset, and not the 429. Over
    /// HTTP/2, hyper and axum end a connection, with all its requests, when about 1,000 bodies were
    /// dropped while they were sent. tonic's own server does not.
    ///
    /// At most 64 MiB of a body are read, for 2 s at most, and of 256 bodies at once; further
    /// bodies are dropped. The body of a caller with `Expect: 100-continue` is not read. Put the
    /// layer outside of a decompression of bodies. The runtime needs timers.
    ///
    /// The service must take an `http::Request` with a body that has a `Default`, as those of axum
    /// and tonic do. hyper's `Incoming` has none: wrap it in another body outside of the layer.
    #[doc(alias("upload", "reset", "lingering"))]
    pub fn drain_refused(self) -> RateLimitLayer<L, K, R, Hooks<F, W, DrainRefused>> {
        self.with_hooks(|hooks| Hooks {
            settle: hooks.settle,
            later: hooks.later,
            drain: DrainRefused::new(),
        })
    }

    fn with_hooks<H>(self, change: impl FnOnce(Hooks<F, W, D>) -> H) -> RateLimitLayer<L, K, R, H> {
        let Shared { limiter, key, respond, hooks, max_wait, waiters, watch } = self.into_shared();
        let hooks = change(hooks);
        let shared = Shared { limiter, key, respond, hooks, max_wait, waiters, watch };
        RateLimitLayer { shared: Arc::new(shared) }
    }

    fn into_shared(self) -> Shared<L, K, R, Hooks<F, W, D>> {
        Arc::unwrap_or_clone(self.shared)
    }
}

impl<S, L, K, R, H> Layer<S> for RateLimitLayer<L, K, R, H> {
    type Service = RateLimit<S, L, K, R, H>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, shared: Arc::clone(&self.shared) }
    }
}

impl<L, K, R, H> Clone for RateLimitLayer<L, K, R, H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

debug_by_name!([L: fmt::Debug, K, R: fmt::Debug, H] RateLimitLayer<L, K, R, H>: shared);
