//! A socket that reads on for a moment after its last answer.
//!
//! A refusal is sent before the body of its request is read, and ends the connection. A socket that
//! is closed with bytes unread resets the connection, and the caller may lose the answer. So the
//! bytes that still come are read and dropped, within bounds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::port::connections::{Caller, ConnectionPlace};
use crate::port::framing::Framing;

/// The longest time that it reads on.
const LONGEST: Duration = Duration::from_secs(2);
/// The bytes after which other connections have their turn: heads of HTTP/2 are no work of one
/// request, so a caller that sends all the time would keep others waiting.
const TURN: usize = 64 << 10;

/// A stream whose shutdown reads what still comes, until the caller has closed its side.
pub(crate) struct Lingering<T> {
    inner: T,
    caller: Arc<Caller>,
    _place: Option<ConnectionPlace>,
    framing: Framing,
    /// The bytes that were read in this turn.
    read: usize,
    /// Set once our side is closed.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> Lingering<T> {
    /// The stream of a caller. It keeps the caller's place.
    pub(crate) fn new(
        inner: T,
        caller: Arc<Caller>,
        place: impl Into<Option<ConnectionPlace>>,
    ) -> Self {
        let framing = Framing::default();
        Self { inner, caller, _place: place.into(), framing, read: 0, until: None }
    }

    fn taken(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Pending | Poll::Ready(Ok(1..)) = written {
            self.caller.takes(written.is_pending());
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lingering<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= TURN {
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let bytes = &buffer.filled()[before..];
        self.read = if read.is_pending() { 0 } else { self.read + bytes.len() };
        if bytes.is_empty() || self.caller.is_tunnel() {
            return read;
        }
        if !self.caller.is_running() {
            self.caller.hears();
        }
        let heads = self.framing.read(bytes);
        self.caller.has_heads(heads);
        read
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.taken(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.taken(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.until.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            if this.caller.is_tunnel() {
                return Poll::Ready(Ok(()));
            }
            this.until = Some(Box::pin(sleep(LONGEST)));
        }
        let mut dropped = [0; 4_096];
        // Bounded, so that a caller that never stops sending leaves room for others.
        for _ in 0..16 {
            if this.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut dropped);
            let read = ready!(Pin::new(&mut this.inner).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::port::running::Running;
    use crate::port::timeouts::Timeouts;

    fn of_somebody() -> Arc<Caller> {
        Caller::new("127.0.0.1:1".parse().unwrap(), Running::default(), Timeouts::default())
    }

    #[tokio::test]
    async fn it_reads_until_the_caller_has_closed_its_side() {
        let (mut caller, server) = duplex(64);
        let mut server = Lingering::new(server, of_somebody(), None);
        server.write_all(b"refused").await.unwrap();
        let closed = tokio::spawn(async move { server.shutdown().await });
        caller.write_all(&[0; 100_000]).await.unwrap();
        caller.shutdown().await.unwrap();
        closed.await.unwrap().unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "refused");
    }

    #[tokio::test]
    async fn it_waits_for_a_silent_caller_and_not_for_ever() {
        let (_caller, server) = duplex(64);
        let begun = tokio::time::Instant::now();
        Lingering::new(server, of_somebody(), None).shutdown().await.unwrap();
        assert!(begun.elapsed() >= LONGEST);
    }
}
