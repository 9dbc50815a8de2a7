//! The layer: a limiter, the key of a request, and what a refused caller sees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::http::{CountBodyLayer, DrainRefused, HandOut, HttpResponder, Recipient};
use crate::limiter::{DEFAULT_MAX_WAITERS, Limiter};
use crate::responder::GivePlace;
use crate::service::RateLimit;
use crate::settle::{PenalizeIf, RefundIf, RefundOnError, RefundUnused, ResetIf, WithActualCost};
use crate::shared::Shared;

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
/// limiter decides about both limits. For one key, take a tuple of algorithms. For different keys,
/// take [`AllAtOnce`](crate::limiter::AllAtOnce) or [`AllInTurn`](crate::limiter::AllInTurn). See
/// [several limits](crate::guide::several_limits).
///
/// Clones share the limiter and the number of requests that wait, so a framework may apply the
/// layer to each route. A setter on one clone does not change the others.
#[doc(alias("GovernorLayer", "throttle"))]
#[must_use]
pub struct RateLimitLayer<L, K, R> {
    shared: Arc<Shared<L, K, R>>,
}

impl<L: Limiter, K> RateLimitLayer<L, K, HttpResponder> {
    /// Limits requests by `limiter`. Each request is charged to the key that `key` finds in it.
    ///
    /// `key` is usually [`by_head`](crate::by_head) around a closure over the head. It may be a
    /// closure over the whole request, which states the request's type.
    /// [`Global`](crate::key::Global) is one key for all requests. See
    /// [`KeyExtractor`](crate::key::KeyExtractor).
    ///
    /// A closure over the head does not compile without `by_head`. The compiler says "expected
    /// closure signature `for<'a> fn(&'a Request<Body>) -> _`", or "type annotations needed".
    ///
    /// A cost of 0 counts as 1: see [`Charge::cost`](crate::Charge::cost).
    ///
    /// [`HttpResponder`] answers refusals. A service that does not speak HTTP needs another
    /// responder, such as [`Raise`](crate::respond::Raise): see
    /// [`respond`](RateLimitLayer::respond).
    pub fn new(limiter: L, key: K) -> Self {
        let (limiter, key, respond) = (limiter.into(), key.into(), HttpResponder::new().into());
        let waiters = Arc::new(Semaphore::new(DEFAULT_MAX_WAITERS));
        let (max_wait, watch) = (Duration::ZERO, Arc::default());
        Self { shared: Arc::new(Shared { limiter, key, respond, max_wait, waiters, watch }) }
    }
}

impl<L, K, R> RateLimitLayer<L, K, R> {
    /// Sets the longest time that a request waits for its slot if it does not fit now. Default: 0,
    /// which refuses it.
    ///
    /// A [`max_wait`](crate::Charge::max_wait) of the charge takes precedence. No wait is longer
    /// than the algorithm's horizon, 60 s by default.
    ///
    /// # Callers who lose patience
    ///
    /// When a caller leaves while it waits, its slot becomes free. The later requests of this
    /// process for the same key, quota and cost move up, in their order. They go earlier than was
    /// decided, never later. The last slot goes back to the store. The store cannot take it if
    /// another process has reserved a later slot. Then the next charge of that key takes it,
    /// without a call.
    ///
    /// So a `max_wait` longer than the patience of callers costs no throughput. If you know that
    /// patience, still choose a shorter `max_wait`. A request that would leave before its slot is
    /// then refused at once, and its caller learns when to come back.
    ///
    /// A tower `Timeout` outside of the layer is such a caller: its time includes the wait. Inside
    /// of the layer, a `Timeout` limits only the call.
    ///
    /// Requests to several limiters move up only if all of their keys are equal. A reset or a block
    /// by another process does not change the slots that are kept here: a charge may still wait for
    /// one.
    #[doc(alias("delay", "queue"))]
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { shared: Arc::new(Shared { max_wait: wait, ..Shared::clone(&self.shared) }) }
    }

    /// Sets how many requests may wait at once; all others are admitted now or refused. Default:
    /// 1,024. A request that may wait counts from its call, while the limiter decides about it.
    ///
    /// Clones made after this call, and their services, share this number.
    #[doc(alias("max_queue", "queue_size"))]
    pub fn max_waiters(self, requests: usize) -> Self {
        let waiters = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { waiters, ..Shared::clone(&self.shared) }) }
    }

    /// Sets what a refused caller sees: a [`Respond`](crate::respond::Respond), such as
    /// [`Raise`](crate::respond::Raise) or a closure. Default: [`HttpResponder`].
    ///
    /// It replaces the responder alone: what the setters below have added stays. It may replace
    /// [`HttpResponder`] and [`Raise`](crate::respond::Raise), and no responder of your own.
    pub fn respond<T>(self, respond: T) -> RateLimitLayer<L, K, R::Changed>
    where
        R: GivePlace<T>,
    {
        let respond = self.shared.respond.give_place(respond);
        self.with_responder(respond)
    }

    /// Refunds a request if `condition` returns true: a closure over `&Decision` and the response.
    /// Default: what was charged stays.
    ///
    /// [`WithActualCost`](crate::respond::WithActualCost) has examples, and lists what each
    /// algorithm can refund.
    pub fn refund_if<F>(
        self,
        condition: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, RefundIf<F>>> {
        self.with_actual_cost(RefundIf(condition))
    }

    /// Refunds the units that a request did not use. `used` is a closure over `&Decision` and the
    /// response that returns the units used, or `None` to keep what was charged. Default: what was
    /// charged stays.
    ///
    /// If `used` returns more than was charged, all of the charge stays, and no more is taken. So
    /// any limiter that refunds is enough.
    pub fn refund_unused<F>(
        self,
        used: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, RefundUnused<F>>> {
        self.with_actual_cost(RefundUnused(used))
    }

    /// Sets what a request cost in the end. If that is less than the charge, the rest is refunded;
    /// if it is more, the difference is taken. `cost` is a closure over `&Decision` and the
    /// response that returns units, or `None` to keep what was charged. Default: what was charged
    /// stays.
    ///
    /// Redisson's limiter takes no more than was charged.
    pub fn actual_cost<F>(self, cost: F) -> RateLimitLayer<L, K, WithActualCost<R, F>> {
        self.with_actual_cost(cost)
    }

    /// Takes `units` more if `condition` returns true: a closure over `&Decision` and the response.
    /// Use it for responses that show abuse. Default: what was charged stays.
    ///
    /// The units are taken even if they do not fit. A bucket then owes them, and the key is refused
    /// until they have refilled; a window takes at most its limit. If the cost depends on the
    /// response, use [`actual_cost`](RateLimitLayer::actual_cost).
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{Decision, LimiterExt, Memory, Quota, RateLimitLayer, by_head};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let limiter = Memory::new("files", TokenBucket::new(Quota::per_minute(100)));
    /// let not_found = |_: &Decision, response: &Response<String>| response.status() == 404;
    /// let service = RateLimitLayer::new(limiter.clone(), by_head(|head| head.header("x-user")))
    ///     .penalize_if(9, not_found)
    ///     .layer(service_fn(|_: Request<()>| async {
    ///         Ok::<_, BoxError>(Response::builder().status(404).body(String::new())?)
    ///     }));
    /// let request = Request::builder().header("x-user", "scanner").body(())?;
    /// service.oneshot(request).await?;
    /// assert_eq!(limiter.peek("scanner").await?.remaining(), Some(90));
    /// # Ok::<(), BoxError>(()) }).unwrap();
    /// ```
    pub fn penalize_if<F>(
        self,
        units: u64,
        condition: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, PenalizeIf<F>>> {
        self.with_actual_cost(PenalizeIf { units, condition })
    }

    /// Resets the key of a request if `condition` returns true: a closure over `&Decision` and the
    /// response. For example, a login that succeeds clears the failures before it. Default: what
    /// was charged stays.
    ///
    /// It calls [`LimiterExt::reset`](crate::LimiterExt::reset) with the charge of the request,
    /// whose own units are forgotten too. A charge of several keys resets all of them. So limit an
    /// address and a user by separate layers: otherwise a caller with an account clears the
    /// address.
    ///
    /// The response waits for the reset, so that the next request finds the key cleared. If the
    /// store fails, the response still passes, and the units stay taken. A limiter without resets,
    /// such as a closure, refunds the request instead. Policies refund it too: your handler resets
    /// the right one with [`PolicyHandle::reset`](crate::policy::PolicyHandle::reset). If the
    /// limiter failed open, the request took nothing and resets nothing.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::FixedWindow;
    /// use tower_sluice::{Decision, LimiterExt, Memory, Quota, RateLimitLayer, by_head};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let limiter = Memory::new("logins", FixedWindow::new(Quota::per_hour(5)));
    /// let succeeded = |_: &Decision, response: &Response<()>| response.status() == 200;
    /// let service = RateLimitLayer::new(limiter.clone(), by_head(|head| head.header("x-user")))
    ///     .reset_if(succeeded)
    ///     .layer(service_fn(|login: Request<&'static str>| async move {
    ///         let status = if *login.body() == "secret" { 200 } else { 401 };
    ///         Ok::<_, BoxError>(Response::builder().status(status).body(())?)
    ///     }));
    /// let login = |password| Request::builder().header("x-user", "alice").body(password).unwrap();
    /// service.clone().oneshot(login("a guess")).await?;
    /// assert_eq!(limiter.peek("alice").await?.remaining(), Some(4));
    /// service.oneshot(login("secret")).await?;
    /// assert_eq!(limiter.peek("alice").await?.remaining(), Some(5));
    /// # Ok::<(), BoxError>(()) }).unwrap();
    /// ```
    #[doc(alias("login", "success"))]
    pub fn reset_if<F>(self, condition: F) -> RateLimitLayer<L, K, WithActualCost<R, ResetIf<F>>> {
        self.with_actual_cost(ResetIf(condition))
    }

    /// Refunds a request if the inner service fails and `condition` returns true: a closure over
    /// the error. Default: what was charged stays.
    ///
    /// It is for clients, where a failed call is an error. For example, a refused connection may
    /// cost nothing.
    ///
    /// ```
    /// use std::io;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::key::Global;
    /// use tower_sluice::respond::Raise;
    /// use tower_sluice::{LimiterExt, Memory, Quota, RateLimitLayer};
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
    pub fn refund_on_error<F>(
        self,
        condition: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, RefundOnError<F>>> {
        self.with_actual_cost(RefundOnError(condition))
    }

    /// Reads on the body of a refused request in the background, and drops what it reads. Default:
    /// the body is dropped at once.
    ///
    /// Use it for uploads over HTTP/1.1. Without it, the server closes the connection of a refused
    /// upload while its caller still sends. The caller then sees a reset, and not the 429.
    ///
    /// At most 64 MiB of a body are read, for 2 s at most, and of 256 bodies at once; further
    /// bodies are dropped. Bodies of HTTP/2, and of a caller with `Expect: 100-continue`, are not
    /// read: these callers see the answer anyway.
    ///
    /// Put the layer outside of a decompression of bodies, so that refused bodies are not
    /// decompressed. The runtime needs timers. Without them, the task that reads panics, and the
    /// body is dropped.
    ///
    /// The service must take an `http::Request` with a body that has a `Default`, as those of axum
    /// and tonic do. hyper's `Incoming` has none: wrap it in another body outside of the layer.
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{Memory, Quota, RateLimitLayer, by_head};
    ///
    /// let limiter = Memory::new("uploads", TokenBucket::new(Quota::per_minute(10)));
    /// let limit = RateLimitLayer::new(limiter, by_head(|head| head.header("x-user")));
    /// let upload = post(async |file: axum::body::Bytes| format!("{} bytes", file.len()));
    /// let app: Router = Router::new().route("/", upload).layer(limit.drain_refused());
    /// ```
    #[doc(alias("upload", "reset", "lingering"))]
    pub fn drain_refused(self) -> RateLimitLayer<L, K, WithActualCost<R, DrainRefused>> {
        self.with_actual_cost(DrainRefused::new())
    }

    /// Adds a [`SettleHandle`](crate::respond::SettleHandle) to the extensions of each request, so
    /// that its handler can settle what the request took. Default: off.
    ///
    /// A handler that takes the units out of the handle settles them, even later and from another
    /// task. Then the layer does not settle. Otherwise the layer settles as it would without a
    /// handle. [`Unsettled`](crate::respond::Unsettled) shows how to settle when a caller hangs up.
    ///
    /// The service must take an `http::Request` and return an `http::Response`. For other services,
    /// [`actual_cost`](RateLimitLayer::actual_cost) reads the cost from what the service returns.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::FixedWindow;
    /// use tower_sluice::respond::SettleHandle;
    /// use tower_sluice::{Charge, LimiterExt, Memory, Quota, RateLimitLayer, by_head};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let tokens = Memory::new("tokens", FixedWindow::new(Quota::per_hour(10_000)));
    /// // Each request is charged the most that it may use.
    /// let most = by_head(|head| Some(Charge::new(head.header("x-user")?).cost(1_000)));
    /// let layer = RateLimitLayer::new(tokens.clone(), most).settle_in_handler();
    ///
    /// let service = layer.layer(service_fn(|request: Request<()>| async move {
    ///     let handle = request.extensions().get::<SettleHandle>().expect("the layer adds it");
    ///     if let Some(unsettled) = handle.take() {
    ///         // Or in a task that goes on after the response.
    ///         unsettled.settle(120).await.expect("settled");
    ///     }
    ///     Ok::<_, Infallible>(Response::new(()))
    /// }));
    /// let request = Request::builder().header("x-user", "alice").body(()).unwrap();
    /// service.oneshot(request).await.unwrap();
    /// assert_eq!(tokens.peek("alice").await?.remaining(), Some(9_880));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    #[doc(alias("llm", "stream"))]
    pub fn settle_in_handler(self) -> RateLimitLayer<L, K, WithActualCost<R, HandOut>>
    where
        L: Limiter + Send + Sync + 'static,
    {
        self.hand_out(Recipient::Handler)
    }

    /// Settles each request with the cost of its response's body: for streams, whose cost is known
    /// at their end. `count` is a closure over `&Frame` that returns the units of a frame of data
    /// or trailers, or it is [`CountBytes`](crate::respond::CountBytes). Default: bodies do not
    /// count.
    ///
    /// Call it last: what it returns has no further setters. The request costs the sum of the units
    /// of all frames. When the body ends, fails or is dropped, the unused units are refunded, or
    /// the missing ones are taken. So a caller that leaves in the middle pays for what it was sent.
    /// A response without frames costs nothing. gRPC responses are counted in the same way.
    ///
    /// **A caller that leaves before the response** drops no body. So nothing is settled, and the
    /// whole charge stays. A [`Budget`](crate::algorithm::Budget) holds it at least for its
    /// `max_hold`. A language model may take seconds before its first token: in such a case let the
    /// handler settle. [`Unsettled`](crate::respond::Unsettled) has an example.
    ///
    /// **A comment that keeps a connection alive is a frame too**: axum's `Sse::keep_alive` sends
    /// such comments. Count it as 0, as in the second example below.
    ///
    /// With `count_body`, the other setters apply only if the inner service returns an error, and
    /// [`reset_if`](RateLimitLayer::reset_if) resets nothing. If a handler takes its
    /// [`SettleHandle`](crate::respond::SettleHandle), the handler settles and the body does not.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::crates::http_body::Frame;
    /// use tower_sluice::respond::CountBytes;
    /// use tower_sluice::{LimiterExt, Memory, Quota, RateLimitLayer, by_head};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let limiter = Memory::new("bytes", TokenBucket::new(Quota::per_day(1_000_000)));
    /// let layer = RateLimitLayer::new(limiter.clone(), by_head(|head| head.header("x-user")));
    /// let service = layer.count_body(CountBytes).layer(service_fn(|_: Request<()>| async {
    ///     Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    /// }));
    /// let request = Request::builder().header("x-user", "alice").body(()).unwrap();
    /// service.oneshot(request).await.unwrap().into_body().collect().await.unwrap();
    /// assert_eq!(limiter.peek("alice").await?.remaining(), Some(999_995));
    ///
    /// // An event of a stream is a frame of its own, and costs a unit. A comment costs nothing.
    /// let events = |frame: &Frame<Bytes>| {
    ///     u64::from(frame.data_ref().is_some_and(|event| !event.starts_with(b":")))
    /// };
    /// assert_eq!(events(&Frame::data(Bytes::from("data: hello\n\n"))), 1);
    /// assert_eq!(events(&Frame::data(Bytes::from(":\n\n"))), 0);
    /// let layer = RateLimitLayer::new(limiter, by_head(|head| head.header("x-user")));
    /// let layer = layer.count_body(events);
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    #[doc(alias("sse", "stream", "bandwidth"))]
    #[must_use]
    pub fn count_body<F>(
        self,
        count: F,
    ) -> CountBodyLayer<RateLimitLayer<L, K, WithActualCost<R, HandOut>>, F>
    where
        L: Limiter + Send + Sync + 'static,
    {
        CountBodyLayer::new(self.hand_out(Recipient::Body), count)
    }

    fn hand_out(self, to: Recipient) -> RateLimitLayer<L, K, WithActualCost<R, HandOut>>
    where
        L: Limiter + Send + Sync + 'static,
    {
        let limiter = Arc::clone(&self.shared.limiter);
        let settle_by = Arc::new(move |reservation, actual| limiter.settle(reservation, actual));
        self.with_actual_cost(HandOut { settle_by, to })
    }

    fn with_actual_cost<F>(self, cost: F) -> RateLimitLayer<L, K, WithActualCost<R, F>> {
        let respond = WithActualCost::new(Arc::clone(&self.shared.respond), cost);
        self.with_responder(respond)
    }

    fn with_responder<T>(self, respond: T) -> RateLimitLayer<L, K, T> {
        let Shared { limiter, key, max_wait, waiters, watch, .. } = Shared::clone(&self.shared);
        let shared = Shared { limiter, key, respond: respond.into(), max_wait, waiters, watch };
        RateLimitLayer { shared: Arc::new(shared) }
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

debug_by_name!([L: fmt::Debug, K, R: fmt::Debug] RateLimitLayer<L, K, R>: shared);
