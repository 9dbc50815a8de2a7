//! Connections as clients have them: what they send goes to the network, in order, and what has
//! arrived waits for them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};

/// Opens sockets for a client, from any thread as the crate wants it.
#[derive(Clone)]
pub struct Dialer {
    pub outbox: Outbox,
    pub client: usize,
}

impl Dialer {
    pub async fn dial(self, host: String) -> io::Result<Socket> {
        let (socket, opened) = oneshot::channel();
        self.outbox.send(Sent::Dial { host, client: self.client, socket });
        let opened = opened.await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionRefused.into()));
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Other) {
            // Without the message that a hook would print.
            std::panic::resume_unwind(Box::new("as planned"));
        }
        opened
    }
}

pub type Opening = oneshot::Sender<io::Result<Socket>>;

/// An action of a client. The network runs them in order.
pub enum Sent {
    Dial { host: String, client: usize, socket: Opening },
    Piece { link: u64, bytes: Vec<u8> },
    End { link: u64 },
}

/// The way from clients into the network.
#[derive(Clone, Default)]
pub struct Outbox {
    sent: Arc<Mutex<Vec<Sent>>>,
    pub bell: Arc<Notify>,
}

impl Outbox {
    fn send(&self, sent: Sent) {
        self.sent.lock().expect("no panic").push(sent);
        self.bell.notify_one();
    }

    pub fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut self.sent.lock().expect("no panic"))
    }
}

/// The way back to one client: what has arrived there.
#[derive(Default)]
pub struct Inbox {
    pub bytes: Vec<u8>,
    pub is_closed: bool,
    reader: Option<Waker>,
}

impl Inbox {
    pub fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// A connection as a client has it.
pub struct Socket {
    pub link: u64,
    pub inbox: Arc<Mutex<Inbox>>,
    pub outbox: Outbox,
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inbox = self.inbox.lock().expect("no panic");
        if inbox.bytes.is_empty() && !inbox.is_closed {
            inbox.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let size = inbox.bytes.len().min(buffer.remaining());
        buffer.put_slice(&inbox.bytes[..size]);
        inbox.bytes.drain(..size);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.inbox.lock().expect("no panic").is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.outbox.send(Sent::Piece { link: self.link, bytes: bytes.to_vec() });
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.outbox.send(Sent::End { link: self.link });
    }
}
