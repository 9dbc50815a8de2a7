//! The layer: a limiter, the key of a request, and what a refused caller sees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::http::{CountBodyLayer, HandOut, HttpResponder, Recipient};
use crate::limiter::Limiter;
use crate::service::RateLimit;
use crate::settle::{PenalizeIf, RefundIf, RefundOnError, RefundUnused, ResetIf, WithActualCost};
use crate::shared::Shared;

/// The number of a layer's requests that may wait at once, unless set otherwise.
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
/// limiter decides both: a tuple of algorithms for one key,
/// [`AllAtOnce`](crate::limiter::AllAtOnce) or [`AllInTurn`](crate::limiter::AllInTurn) for
/// different keys. See [several limits](crate::guide::several_limits).
///
/// Clones share the limiter and the number of requests that wait, so a framework may apply the
/// layer to each route. A clone can be set up further; that does not change the others.
#[doc(alias("GovernorLayer", "throttle"))]
pub struct RateLimitLayer<L, K, R> {
    shared: Arc<Shared<L, K, R>>,
}

impl<L: Limiter, K> RateLimitLayer<L, K, HttpResponder> {
    /// Limits requests by `limiter`, each charged to the key that `key` finds in it.
    ///
    /// `key` is usually [`by_head`](crate::by_head) around a closure over the head. It may be a
    /// closure over the whole request, which states the request's type, or
    /// [`Global`](crate::key::Global), one key for all. See
    /// [`KeyExtractor`](crate::key::KeyExtractor).
    ///
    /// A closure over the head without `by_head` does not compile: "expected closure signature
    /// `for<'a> fn(&'a Request<Body>) -> _`", or "type annotations needed".
    ///
    /// A cost of 0 counts as 1: see [`Charge::cost`](crate::Charge::cost).
    ///
    /// [`HttpResponder`] answers refusals. A service that does not speak HTTP needs another
    /// responder, such as [`Raise`](crate::respond::Raise): see
    /// [`respond`](RateLimitLayer::respond).
    #[must_use]
    pub fn new(limiter: L, key: K) -> Self {
        let (limiter, key, respond) = (limiter.into(), key.into(), HttpResponder::new().into());
        let waiters = Arc::new(Semaphore::new(DEFAULT_MAX_WAITERS));
        let (max_wait, watch) = (Duration::ZERO, Arc::default());
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
    /// than was decided, never later. The last slot goes back to the store. If the store cannot
    /// take it, since another process has reserved a later one, the next charge of that key takes
    /// it, without a call.
    ///
    /// So a `max_wait` longer than the patience of callers costs no throughput. Still choose it
    /// below that patience, where you know it: a request that would leave before its slot is then
    /// refused at once, and its caller knows when to come back.
    ///
    /// A tower `Timeout` outside of the layer is such a caller: its time includes the wait. Inside
    /// of the layer it bounds the call alone.
    ///
    /// Requests to several limiters at once move up where the keys of all are the same. A reset by
    /// another process does not reach the slots at hand: a charge may still wait for one.
    #[doc(alias("delay", "queue"))]
    #[must_use]
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { shared: Arc::new(Shared { max_wait: wait, ..Shared::clone(&self.shared) }) }
    }

    /// Lets at most `requests` wait at once; the others are admitted now or
    /// refused. Default: 1,024.
    ///
    /// The clones made from here on, and the services, share this number.
    #[doc(alias("max_queue", "queue_size"))]
    #[must_use]
    pub fn max_waiters(self, requests: usize) -> Self {
        let waiters = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { waiters, ..Shared::clone(&self.shared) }) }
    }

    /// Sets what a refused caller sees: a [`Respond`](crate::respond::Respond), such as
    /// [`Raise`](crate::respond::Raise) or a closure. Default: [`HttpResponder`].
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
    /// See [`WithActualCost`](crate::respond::WithActualCost) for examples, and for what an
    /// algorithm can refund.
    #[must_use]
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
    /// More than was charged counts as what was charged, so any limiter that refunds is enough.
    #[must_use]
    pub fn refund_unused<F>(
        self,
        used: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, RefundUnused<F>>> {
        self.with_actual_cost(RefundUnused(used))
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
    pub fn actual_cost<F>(self, cost: F) -> RateLimitLayer<L, K, WithActualCost<R, F>> {
        self.with_actual_cost(cost)
    }

    /// Takes `units` more if `condition` holds, a closure over `&Decision` and the response: for
    /// responses that show abuse. Default: what was charged stays.
    ///
    /// They are taken whether or not they fit. A bucket owes them; a window takes its limit at
    /// most.
    /// A cost that follows from the response is for [`actual_cost`](RateLimitLayer::actual_cost).
    /// As there, a limiter that cannot take more passes no request.
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
    #[must_use]
    pub fn penalize_if<F>(
        self,
        units: u64,
        condition: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, PenalizeIf<F>>> {
        self.with_actual_cost(PenalizeIf { units, condition })
    }

    /// Starts the key of a request anew if `condition` holds, a closure over `&Decision` and the
    /// response: a login that succeeds clears the failures before it. Default: what was charged
    /// stays.
    ///
    /// It is [`LimiterExt::reset`](crate::LimiterExt::reset) with the charge of the request, whose
    /// own units are forgotten too. A charge of several keys resets all of them, so limit an
    /// address apart from a user: else a caller with an account of its own clears the address.
    ///
    /// The response waits for the reset, so that the next request finds the key cleared. If the
    /// store fails, the response passes all the same and the units stay taken. A limiter without
    /// resets, such as a closure, refunds the request instead. So do policies: only your handler
    /// knows which of them to reset, by
    /// [`PolicyHandle::reset`](crate::policy::PolicyHandle::reset). A request that took nothing,
    /// since the limiter failed open, resets nothing.
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
    #[must_use]
    pub fn reset_if<F>(self, condition: F) -> RateLimitLayer<L, K, WithActualCost<R, ResetIf<F>>> {
        self.with_actual_cost(ResetIf(condition))
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
    #[must_use]
    pub fn refund_on_error<F>(
        self,
        condition: F,
    ) -> RateLimitLayer<L, K, WithActualCost<R, RefundOnError<F>>> {
        self.with_actual_cost(RefundOnError(condition))
    }

    /// Hands out what each request took to its handler, as a
    /// [`SettleHandle`](crate::respond::SettleHandle) in the extensions of the request. Default: it
    /// does not.
    ///
    /// A handler that takes it settles it, also later and from another task, and the layer does
    /// not. If the handler leaves it where it is, the layer settles as it would without a handle.
    /// [`Unsettled`](crate::respond::Unsettled) shows how to settle when a caller hangs up.
    ///
    /// The service takes an `http::Request` and returns an `http::Response`. For another one,
    /// [`actual_cost`](RateLimitLayer::actual_cost) reads the cost from what it returns.
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
    #[must_use]
    pub fn settle_in_handler(self) -> RateLimitLayer<L, K, HandOut<R>>
    where
        L: Limiter + Send + Sync + 'static,
    {
        self.hand_out(Recipient::Handler)
    }

    /// Settles each request with what the body of its response cost: for streams, whose cost is
    /// known when they end. `count` is a closure over `&Frame` that returns the units of a frame,
    /// of data or of trailers, or [`CountBytes`](crate::respond::CountBytes). Default: bodies do
    /// not count.
    ///
    /// Call it last: what it returns has no further setters. The units of all frames are what the
    /// request costs. Less than was charged is refunded, and more is taken, once the body ends,
    /// fails or is dropped. So a caller that leaves in the middle pays for what it was sent, and a
    /// response without frames costs nothing. Responses of gRPC are counted alike.
    ///
    /// **A caller that leaves before the response** drops no body, so nothing is settled, and all
    /// that was charged stays. A [`Budget`](crate::algorithm::Budget) holds it until its time is
    /// over. A model may think for seconds before its first token. There let the handler settle:
    /// [`Unsettled`](crate::respond::Unsettled) has an example.
    ///
    /// **A comment that keeps a connection alive is a frame too**, as axum's `Sse::keep_alive`
    /// sends them. Count it as 0, as in the second example below.
    ///
    /// The other setters settle nothing of a response then, but an error of the inner service, and
    /// [`reset_if`](RateLimitLayer::reset_if) resets nothing. A handler that takes its
    /// [`SettleHandle`](crate::respond::SettleHandle) settles in place of the body. A limiter that
    /// cannot take more passes no request, as for [`actual_cost`](RateLimitLayer::actual_cost).
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
    pub fn count_body<F>(self, count: F) -> CountBodyLayer<RateLimitLayer<L, K, HandOut<R>>, F>
    where
        L: Limiter + Send + Sync + 'static,
    {
        CountBodyLayer::new(self.hand_out(Recipient::Body), count)
    }

    fn hand_out(self, to: Recipient) -> RateLimitLayer<L, K, HandOut<R>>
    where
        L: Limiter + Send + Sync + 'static,
    {
        let limiter = Arc::clone(&self.shared.limiter);
        let settle_by = Arc::new(move |reservation, actual| limiter.settle(reservation, actual));
        let respond = HandOut::new(Arc::clone(&self.shared.respond), settle_by, to);
        self.respond(respond)
    }

    fn with_actual_cost<F>(self, cost: F) -> RateLimitLayer<L, K, WithActualCost<R, F>> {
        let respond = WithActualCost::new(Arc::clone(&self.shared.respond), cost);
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

debug_by_name!([L: fmt::Debug, K, R: fmt::Debug] RateLimitLayer<L, K, R>: shared);
