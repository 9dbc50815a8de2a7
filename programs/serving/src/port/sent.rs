//! The body of a request, as the caller sends it.
//!
//! A caller of HTTP/2 may still send what nobody reads any more. Dropped at once, its body would
//! reset the stream, and the caller would lose the response. So the rest is kept until the response
//! has left, and then read to its end, within bounds: some callers take no answer before.
//!
//! By HTTP/2 a body waits for the upstream in a task of hyper, which does not look at the body
//! meanwhile. So the task itself ends when the request is cut, and resets its stream. Hyper polls a
//! body once before it starts that task: it gets nothing then, so that the task knows its request.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, Request, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::rt::Executor;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::port::BoxError;
use crate::port::connections::Caller;
use crate::port::exchange::{Exchange, Patience};

/// The longest time for which a body is read on that nobody wants any more, and for which the
/// upstream is served on whose caller's connection has ended.
const LONGEST: Duration = Duration::from_secs(2);

/// Reads the rest of the request's body, if any is kept. The response has left. Who still sends the
/// body on needs it, as long as the upstream takes it.
pub(crate) fn read_on(exchange: &Arc<Exchange>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if body(exchange).is_none() || !exchange.is_sent() && !exchange.is_by_http2() {
        return;
    }
    let exchange = Arc::clone(exchange);
    runtime.spawn(async move {
        if !exchange.is_sent() {
            let Caller { running, timeouts, .. } = &*exchange.caller;
            exchange.body_leaves(timeouts.body(running)).await;
        }
        if !exchange.is_sent() {
            exchange.cut();
        }
        let Some(mut rest) = body(&exchange).take() else { return };
        let end = poll_fn(|cx| {
            loop {
                match ready!(Pin::new(&mut rest).poll_frame(cx)) {
                    Some(Ok(_)) => {}
                    _ => return Poll::Ready(()),
                }
            }
        });
        let _ = timeout(LONGEST, end).await;
    });
}

tokio::task_local! {
    /// The request whose body the task sends on by HTTP/2.
    static SENDING: OnceLock<Arc<Exchange>>;
    /// Set where a connection runs that starts such tasks.
    static STARTS_TASKS: ();
}

/// Runs a connection of HTTP/2, which starts a task for each body.
pub async fn starting_tasks(connection: impl Future) {
    let _ = STARTS_TASKS.scope((), connection).await;
}

/// Runs the tasks of a connection of HTTP/2: until the request is cut whose body one sends on, or
/// the caller's connection is over.
#[derive(Clone)]
pub struct Sending {
    pub over: CancellationToken,
}

impl<F> Executor<F> for Sending
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, sending: F) {
        let is_cut = poll_fn(|cx| {
            let is_cut =
                |own: &OnceLock<Arc<Exchange>>| own.get().is_some_and(|of| of.poll_cut(cx));
            if SENDING.with(is_cut) { Poll::Ready(()) } else { Poll::Pending }
        });
        let over = self.over.clone();
        tokio::spawn(SENDING.scope(OnceLock::new(), async move {
            tokio::select! {
                biased;
                () = sending => {}
                () = is_cut => {}
                // A body that was answered early may still be on its way.
                () = async { over.cancelled().await; sleep(LONGEST).await } => {}
            }
        }));
    }
}

fn body(exchange: &Exchange) -> MutexGuard<'_, Option<Incoming>> {
    exchange.body.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that ends with an error when its caller is given up. The exchange holds it.
pub struct Sent {
    patience: Patience,
    is_by_http2: bool,
    change_trailers: fn(&mut HeaderMap),
}

impl Sent {
    /// The request with such a body.
    pub(crate) fn of(request: Request<Incoming>, exchange: &Arc<Exchange>) -> Request<Self> {
        let is_by_http2 = request.version() == Version::HTTP_2;
        let patience = Patience::new(Arc::clone(exchange));
        request.map(|sent| {
            *body(exchange) = Some(sent);
            Self { patience, is_by_http2, change_trailers: |_| {} }
        })
    }

    pub fn exchange(&self) -> &Arc<Exchange> {
        self.patience.exchange()
    }

    /// Changes the trailers, once they come.
    pub fn change_trailers(&mut self, change: fn(&mut HeaderMap)) {
        self.change_trailers = change;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let is_over = !self.is_by_http2 || self.is_end_stream();
        let rest = if is_over { body(self.exchange()).take() } else { None };
        drop(rest);
        self.patience.renew(0);
        self.exchange().body_has_left();
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if STARTS_TASKS.try_with(|()| ()).is_ok() {
            return Poll::Pending;
        }
        let _ = SENDING.try_with(|own| {
            own.get_or_init(|| Arc::clone(self.exchange()));
        });
        let is_cut = self.is_by_http2 && self.exchange().poll_cut(cx);
        let frame = match &mut *body(self.exchange()) {
            Some(body) if !is_cut => {
                let frame = Pin::new(&mut *body).poll_frame(cx);
                if self.is_by_http2 && matches!(frame, Poll::Ready(None)) && !body.is_end_stream() {
                    // The stream was reset, which hyper takes for an end where it was no error.
                    let why = io::Error::new(io::ErrorKind::UnexpectedEof, "the body broke off");
                    return Poll::Ready(Some(Err(why.into())));
                }
                frame
            }
            // It is no end: the upstream must not take a part for the whole.
            _ => {
                let why = io::Error::new(io::ErrorKind::TimedOut, "the request is given up");
                return Poll::Ready(Some(Err(why.into())));
            }
        };
        match frame {
            Poll::Ready(frame) => {
                let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                let bytes = bytes.map_or(0, Bytes::len);
                self.patience.renew(bytes);
                let changed = |frame: Frame<Bytes>| match frame.into_trailers() {
                    Ok(mut trailers) => {
                        (self.change_trailers)(&mut trailers);
                        Frame::trailers(trailers)
                    }
                    Err(frame) => frame,
                };
                Poll::Ready(frame.map(|frame| frame.map(changed).map_err(Into::into)))
            }
            Poll::Pending => self.patience.poll_over(cx).map(|over| Some(Err(over.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        body(self.exchange()).as_ref().is_some_and(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        body(self.exchange()).as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}
