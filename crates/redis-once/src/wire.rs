//! The sockets of connections: TCP and Unix sockets that the pool can look at, and a bound on the
//! bytes of a reply.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use redis::io::tcp::socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// The most bytes of the replies to one call. The map of a cluster whose slots alternate between
/// masters with many replicas has half as many.
const MAX_REPLY: usize = 16 << 20;

/// A socket of the system.
pub(super) enum Wire {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Does the same for each kind of socket.
macro_rules! on {
    ($wire:expr, $stream:ident => $do:expr) => {
        match $wire {
            Wire::Tcp($stream) => $do,
            #[cfg(unix)]
            Wire::Unix($stream) => $do,
        }
    };
}

impl Wire {
    /// Returns true if the other side has closed the socket, whether or not the runtime has noticed.
    /// `says_goodbye`: bytes that wait to be read are its goodbye, and no reply.
    pub(super) fn is_closed(&self, says_goodbye: bool) -> bool {
        match on!(self, stream => SockRef::from(stream).peek(&mut [MaybeUninit::uninit()])) {
            Ok(0) => true,
            Ok(_) => says_goodbye,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }

    /// Reads without waiting. A read that leaves room has emptied the socket: as tokio does, this
    /// saves the next read, which would find nothing.
    fn try_read(&self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        on!(self, stream => {
            let mut count = 0;
            let outcome = stream.try_io(Interest::READABLE, || {
                count = stream.try_read_buf(buf)?;
                match cfg!(unix) && count > 0 && buf.remaining() > 0 {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(()),
                }
            });
            if count > 0 { Ok(()) } else { outcome }
        })
    }
}

/// The socket as the client's task owns it. It fails if a reply is too large, since a server could
/// fill the memory.
pub(super) struct OwnedWire {
    wire: Arc<Wire>,
    /// The bytes that came since the last reply.
    unanswered: Arc<AtomicUsize>,
}

impl OwnedWire {
    /// Returns the socket for the task, and for those who look at it. It closes with the task.
    pub(super) fn new(wire: Wire, unanswered: &Arc<AtomicUsize>) -> (Self, Weak<Wire>) {
        let wire = Arc::new(wire);
        let below = Arc::downgrade(&wire);
        (Self { wire, unanswered: Arc::clone(unanswered) }, below)
    }
}

impl AsyncRead for OwnedWire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            ready!(on!(&*self.wire, stream => stream.poll_read_ready(cx)))?;
            match self.wire.try_read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                outcome => outcome?,
            }
            let count = buf.filled().len() - before;
            if self.unanswered.fetch_add(count, Relaxed) + count > MAX_REPLY {
                let message = "redis sent a reply of more than 16 MiB";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, message)));
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for OwnedWire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(on!(&*self.wire, stream => stream.poll_write_ready(cx)))?;
            match on!(&*self.wire, stream => stream.try_write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The task drops the socket next, which closes it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
