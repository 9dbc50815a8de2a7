//! Connections of HTTP/1.1 to the upstream, and the requests that use them one after the other.
//!
//! A connection has no task of its own: the request that uses it drives it, and then the body of
//! its answer. So what the upstream sends wakes the task of the caller's connection at once. Only a
//! request that is still sent while its answer has begun leaves the connection to a task.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::body::BoxError;
use crate::bounded::{Bounded, ConnectionPermit, Entry, Room};
use serving::port::Sent;
use serving::port::{millis, now};

/// Shorter than upstreams keep idle connections, so that few requests meet one that just closes.
const IDLE: Duration = Duration::from_secs(4);

/// The client of one worker.
pub(crate) struct Http1 {
    connector: HttpConnector,
    tls: Arc<ClientConfig>,
    target: Uri,
    idle: Arc<Idle>,
}

/// The idle connections of a worker, the one that was used last at the end.
pub(crate) struct Idle {
    room: Arc<Room>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    open: Vec<(u64, Box<Open>)>,
    /// A task closes those that are idle for too long.
    is_watched: bool,
}

/// A connection.
pub(crate) struct Open {
    sender: SendRequest<Sent>,
    /// None once it has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    home: Arc<Idle>,
    /// True if bytes that were written have not left: TLS keeps some, which hyper does not see.
    is_unsent: Arc<AtomicBool>,
}

impl Http1 {
    /// A client of the host of `target`. It shares `room` with those of other workers.
    pub(crate) fn new(
        connector: HttpConnector,
        tls: Arc<ClientConfig>,
        target: Uri,
        room: &Arc<Room>,
    ) -> Self {
        Self { connector, tls, target, idle: Idle::new(room) }
    }

    /// Sends a request; over another connection if an idle one has closed before anything was sent.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
    ) -> Result<Response<AnswerBody>, BoxError> {
        loop {
            let (mut open, is_new) = self.connection().await?;
            let exchange = Arc::clone(request.body().exchange());
            // It is woken by the connection alone, which is polled before it.
            let mut sending = pin!(unconstrained(open.sender.try_send_request(request)));
            let answer = poll_fn(|cx| {
                open.poll(cx);
                sending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            });
            match answer.await.map_err(|mut error| (error.take_message(), error)) {
                Ok(response) => {
                    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                    let open = match switches || !exchange.is_sent() {
                        true => {
                            tokio::spawn(open.finish());
                            None
                        }
                        false => Some(open),
                    };
                    return Ok(response.map(|body| AnswerBody { body, open }));
                }
                Err((Some(unsent), _)) if !is_new => request = unsent,
                Err((_, error)) => return Err(error.into_error().into()),
            }
        }
    }

    /// A connection, and whether it is new.
    async fn connection(&self) -> Result<(Box<Open>, bool), BoxError> {
        loop {
            let mut open = match self.idle.take() {
                Some(open) => open,
                None => match self.idle.room.enter().await? {
                    // Boxed: it is seldom, and would make the future of every request large.
                    Entry::New(permit) => return Ok((Box::pin(self.open(permit)).await?, true)),
                    Entry::Idle(open) => open,
                },
            };
            if open.is_ready() {
                return Ok((open, false));
            }
        }
    }

    async fn open(&self, permit: ConnectionPermit) -> Result<Box<Open>, BoxError> {
        let connector = Bounded::new(self.connector.clone(), permit);
        let connector = HttpsConnector::from((connector, Arc::clone(&self.tls)));
        let stream = connector.oneshot(self.target.clone()).await?;
        Open::over(stream, &self.idle).await
    }
}

impl Open {
    /// A connection over `stream`, which is idle at `home` between requests.
    async fn over<T>(stream: T, home: &Arc<Idle>) -> Result<Box<Self>, BoxError>
    where
        T: Read + Write + Send + Unpin + 'static,
    {
        let is_unsent = Arc::new(AtomicBool::new(false));
        let stream = Flushed { stream, is_unsent: Arc::clone(&is_unsent) };
        let (sender, connection) = handshake(stream).await?;
        let connection = Some(Box::pin(connection.with_upgrades()) as Pin<Box<_>>);
        Ok(Box::new(Self { sender, connection, home: Arc::clone(home), is_unsent }))
    }

    /// Lets it read and write.
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            // Drops what still waits for an answer.
            self.connection = None;
        }
    }

    /// Returns true if it takes a request. It wakes nobody from now on.
    fn is_ready(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.is_done()
    }

    /// Returns true if a request, its answer, and what was written have ended.
    fn is_done(&self) -> bool {
        self.sender.is_ready() && !self.is_unsent.load(Relaxed)
    }

    /// The answer has ended.
    fn release(mut self: Box<Self>) {
        if self.is_ready() {
            let room = Arc::clone(&self.home.room);
            self.rest();
            room.has_idle();
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.finish());
        }
    }

    /// Runs until the request and the answer have ended.
    async fn finish(mut self: Box<Self>) {
        poll_fn(|cx| {
            self.poll(cx);
            match self.connection.is_none() || self.is_done() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        if self.is_ready() {
            self.release();
        }
    }

    /// Waits for the next request of its worker.
    pub(crate) fn rest(self: Box<Self>) {
        let home = Arc::clone(&self.home);
        let mut list = home.lock();
        list.open.push((now(), self));
        if !list.is_watched
            && let Ok(runtime) = Handle::try_current()
        {
            list.is_watched = true;
            runtime.spawn(Arc::clone(&home).watch());
        }
    }
}

/// A stream that knows whether what was written has left.
struct Flushed<T> {
    stream: T,
    is_unsent: Arc<AtomicBool>,
}

impl<T: Read + Unpin> Read for Flushed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for Flushed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_unsent.store(true, Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_unsent.store(true, Relaxed);
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.is_unsent.store(false, Relaxed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Idle {
    fn new(room: &Arc<Room>) -> Arc<Self> {
        let this = Arc::new(Self { room: Arc::clone(room), list: Mutex::default() });
        room.add(&this);
        this
    }

    /// The connection that was used last.
    pub(crate) fn take(&self) -> Option<Box<Open>> {
        Some(self.lock().open.pop()?.1)
    }

    /// Closes what is idle for too long, until nothing is idle.
    async fn watch(self: Arc<Self>) {
        loop {
            sleep(IDLE / 4).await;
            // Those that are closed give back their permits, after the lock.
            let (closed, is_watched): (Vec<_>, _) = {
                let mut list = self.lock();
                let oldest = now().saturating_sub(millis(IDLE));
                let old = list.open.partition_point(|(since, _)| *since <= oldest);
                let closed = list.open.drain(..old).collect();
                list.is_watched = !list.open.is_empty();
                (closed, list.is_watched)
            };
            drop(closed);
            if !is_watched {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer. It drives the connection that it comes from.
pub(crate) struct AnswerBody {
    body: Incoming,
    /// None where a task does so, and once the body has ended.
    open: Option<Box<Open>>,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { body, open } = self.get_mut();
        let Some(connection) = open else { return Pin::new(body).poll_frame(cx) };
        let mut nobody = Context::from_waker(Waker::noop());
        let mut frame = Pin::new(&mut *body).poll_frame(&mut nobody);
        if frame.is_pending() {
            connection.poll(cx);
            frame = Pin::new(body).poll_frame(&mut nobody);
        }
        match &frame {
            Poll::Ready(Some(Err(_))) => *open = None,
            Poll::Ready(Some(Ok(frame))) if !frame.is_trailers() => {}
            Poll::Ready(_) => open.take().into_iter().for_each(Open::release),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // What is left of a body is not read, so the connection closes.
        if let Some(open) = self.open.take()
            && self.body.is_end_stream()
        {
            open.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, BufWriter, DuplexStream, duplex};

    use super::*;

    /// A connection of this worker, and the other side.
    async fn connection(home: &Arc<Idle>) -> (Box<Open>, DuplexStream) {
        let (stream, upstream) = duplex(64);
        (Open::over(TokioIo::new(stream), home).await.unwrap(), upstream)
    }

    /// The entry, if nobody has to wait for it.
    fn at_once<F: Future<Output = Result<Entry, BoxError>>>(
        entering: Pin<&mut F>,
    ) -> Option<Entry> {
        match entering.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entry) => Some(entry.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_request_takes_what_is_idle_at_another_worker() {
        let room = Room::new(1);
        let (_here, there) = (Idle::new(&room), Idle::new(&room));
        let Ok(Entry::New(_permit)) = room.enter().await else { panic!("there is room") };
        let (open, _upstream) = connection(&there).await;
        open.release();
        assert!(matches!(at_once(pin!(room.enter())), Some(Entry::Idle(_))));
        assert!(at_once(pin!(room.enter())).is_none());
    }

    #[tokio::test]
    async fn a_request_that_waits_has_the_next_connection_of_any_worker() {
        let room = Room::new(1);
        let there = Idle::new(&room);
        let Ok(Entry::New(permit)) = room.enter().await else { panic!("there is room") };
        {
            // It leaves before its turn.
            let mut left = pin!(room.enter());
            assert!(at_once(left.as_mut()).is_none());
        }
        let (mut first, mut second) = (pin!(room.enter()), pin!(room.enter()));
        assert!(at_once(first.as_mut()).is_none() && at_once(second.as_mut()).is_none());
        let (open, _upstream) = connection(&there).await;
        open.release();
        assert!(matches!(at_once(first.as_mut()), Some(Entry::Idle(_))));
        assert!(at_once(second.as_mut()).is_none());
        drop(permit);
        assert!(matches!(at_once(second.as_mut()), Some(Entry::New(_))));
        assert!(matches!(at_once(pin!(room.enter())), Some(Entry::New(_))), "it was given back");
    }

    /// A stream that keeps bytes of its own, as TLS does.
    #[tokio::test]
    async fn a_connection_whose_bytes_have_not_left_takes_no_request() {
        let home = Idle::new(&Room::new(1));
        let (mut open, _upstream) = connection(&home).await;
        let (stream, mut upstream) = duplex(4);
        let stream = TokioIo::new(BufWriter::new(stream));
        let mut stream = Flushed { stream, is_unsent: Arc::clone(&open.is_unsent) };
        assert!(open.is_ready());

        let mut nobody = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_write(&mut nobody, b"the rest").is_ready());
        assert!(Pin::new(&mut stream).poll_flush(&mut nobody).is_pending());
        assert!(!open.is_done());

        let mut read = [0; 8];
        let flushing = poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx));
        let (flushed, arrived) = tokio::join!(flushing, upstream.read_exact(&mut read));
        assert!(flushed.is_ok() && arrived.is_ok());
        assert_eq!(&read, b"the rest");
        assert!(open.is_done());
    }

    #[tokio::test]
    async fn a_connection_that_has_closed_is_not_idle() {
        let room = Room::new(1);
        let home = Idle::new(&room);
        let (open, upstream) = connection(&home).await;
        drop(upstream);
        open.release();
        assert!(home.take().is_none());
    }
}
