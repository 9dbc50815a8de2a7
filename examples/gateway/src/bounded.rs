//! Connections to the upstream, of which there are so many at once and no more. A request that
//! finds none free waits for one.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Service;

/// Opens such connections. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    inner: HttpConnector,
    room: Arc<Semaphore>,
}

impl Bounded {
    pub(crate) fn new(inner: HttpConnector, most: usize) -> Self {
        Self { inner, room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))) }
    }
}

impl Service<Uri> for Bounded {
    type Response = Held;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Held, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let (connecting, room) = (self.inner.call(target), Arc::clone(&self.room));
        Box::pin(async move {
            let permit = room.acquire_owned().await?;
            Ok(Held { stream: connecting.await?, _permit: permit })
        })
    }
}

/// A connection that counts until it is dropped.
pub(crate) struct Held {
    stream: TokioIo<TcpStream>,
    _permit: OwnedSemaphorePermit,
}

impl Connection for Held {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Held {
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
