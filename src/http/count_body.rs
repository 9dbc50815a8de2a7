//! Bodies that count the cost of their frames, and settle it when they end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::unsettled::{SettleHandle, Unsettled};

/// Counts the units of a frame: a closure over [`&Frame`](Frame) that returns the units, or
/// [`CountBytes`].
///
/// A frame is data or trailers. The units of all frames of a body are the cost of the request.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not count frames of `{D}`",
    note = "a closure states the type of its frames: `|frame: &Frame<Bytes>| ..`, and returns a `u64`"
)]
pub trait CountFrame<D> {
    /// The units of this frame.
    fn count(&self, frame: &Frame<D>) -> u64;
}

#[diagnostic::do_not_recommend]
impl<D, F: Fn(&Frame<D>) -> u64> CountFrame<D> for F {
    fn count(&self, frame: &Frame<D>) -> u64 {
        self(frame)
    }
}

/// Counts the bytes of data. Headers, trailers and protocol overhead do not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountBytes;

impl<D: Buf> CountFrame<D> for CountBytes {
    fn count(&self, frame: &Frame<D>) -> u64 {
        frame.data_ref().map_or(0, |data| data.remaining() as u64)
    }
}

pin_project! {
    /// A body that counts the units of its frames, and settles them when it ends.
    ///
    /// [`RateLimitLayer::count_body`](crate::RateLimitLayer::count_body) wraps the body of each
    /// response in it. To count an upload, wrap the body of the request with [`CountedBody::new`],
    /// and take the charge out of a [`SettleHandle`].
    ///
    /// It settles once: when the body has ended or failed, or when it is dropped because the caller
    /// has left. In that case, the frames so far count. A frame counts when the server takes it, so
    /// a caller that leaves may not have received the last counted frames.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::{BodyExt, Full};
    /// use tower_sluice::respond::{CountBytes, CountedBody, SettleHandle};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let handle = SettleHandle::default();
    /// let upload: Full<Bytes> = Full::from("hello");
    /// let body = CountedBody::new(upload, CountBytes, handle.take());
    /// assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    /// # });
    /// ```
    pub struct CountedBody<B, F> {
        #[pin]
        body: B,
        count: Arc<F>,
        units: u64,
        // `None`: it was settled, or nothing was taken.
        unsettled: Option<Unsettled>,
    }

    impl<B, F> PinnedDrop for CountedBody<B, F> {
        fn drop(this: Pin<&mut Self>) {
            this.settle();
        }
    }
}

impl<B, F> CountedBody<B, F> {
    /// Counts the frames of a body by `count`, and settles `unsettled` with the sum. `None`: the
    /// body is not counted.
    pub fn new(body: B, count: F, unsettled: Option<Unsettled>) -> Self {
        Self::shared(body, Arc::new(count), unsettled)
    }

    fn shared(body: B, count: Arc<F>, unsettled: Option<Unsettled>) -> Self {
        Self { body, count, units: 0, unsettled }
    }

    fn settle(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(unsettled) = this.unsettled.take() {
            drop(unsettled.settle(*this.units));
        }
    }
}

impl<B, F> Body for CountedBody<B, F>
where
    B: Body,
    F: CountFrame<B::Data>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.as_mut().project();
        let polled = ready!(this.body.as_mut().poll_frame(cx));
        if this.unsettled.is_some() {
            let is_over = match &polled {
                Some(Ok(frame)) => {
                    *this.units = this.units.saturating_add(this.count.count(frame));
                    // If a body says that it has ended, it may not be polled again.
                    this.body.is_end_stream()
                }
                Some(Err(_)) | None => true,
            };
            if is_over {
                self.settle();
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

debug_by_name!([B, F] CountedBody<B, F>: units);

/// A layer whose responses have bodies that count their cost. Made by
/// [`RateLimitLayer::count_body`](crate::RateLimitLayer::count_body).
pub struct CountBodyLayer<L, F> {
    layer: L,
    count: Arc<F>,
}

impl<L, F> CountBodyLayer<L, F> {
    pub(crate) fn new(layer: L, count: F) -> Self {
        Self { layer, count: Arc::new(count) }
    }
}

impl<S, L: Layer<S>, F> Layer<S> for CountBodyLayer<L, F> {
    type Service = CountBody<L::Service, F>;

    fn layer(&self, inner: S) -> Self::Service {
        CountBody { service: self.layer.layer(inner), count: Arc::clone(&self.count) }
    }
}

impl<L: Clone, F> Clone for CountBodyLayer<L, F> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), count: Arc::clone(&self.count) }
    }
}

debug_by_name!([L: fmt::Debug, F] CountBodyLayer<L, F>: layer);

/// A limited service that counts the bodies of its responses. Made by [`CountBodyLayer`]. It does
/// not count the bodies of refusals, and of requests that took nothing.
pub struct CountBody<S, F> {
    service: S,
    count: Arc<F>,
}

impl<S, F, Req, B> Service<Req> for CountBody<S, F>
where
    S: Service<Req, Response = Response<B>>,
{
    type Response = Response<CountedBody<B, F>>;
    type Error = S::Error;
    type Future = CountBodyFuture<S::Future, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        CountBodyFuture { response: self.service.call(request), count: Arc::clone(&self.count) }
    }
}

impl<S: Clone, F> Clone for CountBody<S, F> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), count: Arc::clone(&self.count) }
    }
}

debug_by_name!([S: fmt::Debug, F] CountBody<S, F>: service);

pin_project! {
    /// The future of [`CountBody`](crate::respond::CountBody).
    pub struct CountBodyFuture<T, F> {
        #[pin]
        response: T,
        count: Arc<F>,
    }
}

impl<T, F, B, E> Future for CountBodyFuture<T, F>
where
    T: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<CountedBody<B, F>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.response.poll(cx))?;
        let handle = response.extensions_mut().remove::<SettleHandle>();
        let unsettled = handle.and_then(|handle| handle.take());
        let count = Arc::clone(this.count);
        Poll::Ready(Ok(response.map(|body| CountedBody::shared(body, count, unsettled))))
    }
}

debug_by_name!([T, F] CountBodyFuture<T, F>);
