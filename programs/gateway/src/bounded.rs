//! Connections of HTTP/1.1 to the upstream, of which there are so many at once and no more. A
//! request that finds none free waits for one.
//!
//! Each worker keeps its own idle connections, so that a request needs no other thread. Where no
//! more may be opened, a request takes one that is idle at another worker, and those that wait have
//! the next one, wherever it becomes free.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tower::Service;

use crate::body::BoxError;
use crate::http1::{Idle, Open};

/// The bound, which all workers share.
pub(crate) struct Room {
    state: Mutex<State>,
    /// The number of requests that wait, for those who look without the lock.
    waiting: AtomicUsize,
}

struct State {
    /// The number of connections that may still be opened.
    free: usize,
    /// Those whose requests are gone stay until their turn.
    waiters: VecDeque<oneshot::Sender<Entry>>,
    workers: Vec<Weak<Idle>>,
}

/// The connection that a request may use.
pub(crate) enum Entry {
    /// A connection that it opens.
    New(ConnectionPermit),
    /// One that was idle.
    Idle(Box<Open>),
}

/// The right to one connection, given back when it is dropped.
pub(crate) struct ConnectionPermit {
    room: Option<Arc<Room>>,
}

impl Room {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let state = State { free: most, waiters: VecDeque::new(), workers: Vec::new() };
        Arc::new(Self { state: Mutex::new(state), waiting: AtomicUsize::new(0) })
    }

    /// Adds the idle connections of a worker.
    pub(crate) fn add(&self, idle: &Arc<Idle>) {
        self.lock().workers.push(Arc::downgrade(idle));
    }

    /// Waits until there is a connection for a request, which found none at its own worker.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Entry, BoxError> {
        let entry = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Entry::New(self.permit()));
            }
            let (sender, entry) = oneshot::channel();
            state.waiters.push_back(sender);
            // Before it looks for idle ones: who frees one then sees that somebody waits.
            self.waiting.store(state.waiters.len(), Relaxed);
            self.serve(&mut state);
            entry
        };
        Ok(entry.await?)
    }

    /// A connection has become idle.
    pub(crate) fn has_idle(self: &Arc<Self>) {
        if self.waiting.load(Relaxed) > 0 {
            self.serve(&mut self.lock());
        }
    }

    /// Gives those that wait what there is.
    fn serve(self: &Arc<Self>, state: &mut State) {
        while let Some(waiter) = state.waiters.pop_front() {
            if waiter.is_closed() {
                continue;
            }
            let entry = if state.free > 0 {
                state.free -= 1;
                Entry::New(self.permit())
            } else if let Some(open) = state.workers.iter().find_map(|idle| idle.upgrade()?.take())
            {
                Entry::Idle(open)
            } else {
                state.waiters.push_front(waiter);
                break;
            };
            // It may have left just now. Nothing is dropped here, which would lock again.
            match waiter.send(entry) {
                Ok(()) => {}
                Err(Entry::New(mut permit)) => {
                    permit.room = None;
                    state.free += 1;
                }
                Err(Entry::Idle(open)) => open.rest(),
            }
        }
        self.waiting.store(state.waiters.len(), Relaxed);
    }

    fn permit(self: &Arc<Self>) -> ConnectionPermit {
        ConnectionPermit { room: Some(Arc::clone(self)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            let mut state = room.lock();
            state.free += 1;
            room.serve(&mut state);
        }
    }
}

/// Opens the one connection that it has a permit for.
#[derive(Clone)]
pub(crate) struct Bounded {
    inner: HttpConnector,
    permit: Arc<Mutex<Option<ConnectionPermit>>>,
}

impl Bounded {
    pub(crate) fn new(inner: HttpConnector, permit: ConnectionPermit) -> Self {
        Self { inner, permit: Arc::new(Mutex::new(Some(permit))) }
    }
}

impl Service<Uri> for Bounded {
    type Response = CountedConnection;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<CountedConnection, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.inner.call(target);
        let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(
            async move { Ok(CountedConnection { stream: connecting.await?, _permit: permit }) },
        )
    }
}

/// A connection that counts until it is dropped.
pub(crate) struct CountedConnection {
    stream: TokioIo<TcpStream>,
    _permit: Option<ConnectionPermit>,
}

impl Connection for CountedConnection {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for CountedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
