//! The sockets of connections: TCP and Unix sockets that the pool can look at, and a bound on the
//! bytes of a reply.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redis::RedisError;
use redis::io::tcp::socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::dialer::Stream;
use super::lock::lock;

/// The most bytes of the replies to one call. The map of a cluster whose slots alternate between
/// masters with many replicas has half as many.
const MAX_REPLY: usize = 16 << 20;

/// The traffic over a connection.
#[derive(Debug)]
pub(super) struct Traffic {
    start: Instant,
    /// The bytes that came since the last reply.
    unanswered: AtomicUsize,
    /// When bytes were first written since bytes were last read, in µs since `start`, at least 1.
    /// 0: nothing was asked since. If a server dies between two replies, the next write counts.
    asked: AtomicU64,
    /// True while a thread reads: it may have taken bytes from the socket, and not recorded them.
    is_reading: AtomicBool,
    /// True if this process has cut the connection, since a reply was too large.
    is_cut: AtomicBool,
}

impl Default for Traffic {
    fn default() -> Self {
        let (unanswered, asked, is_reading, is_cut) = Default::default();
        Self { start: Instant::now(), unanswered, asked, is_reading, is_cut }
    }
}

impl Traffic {
    /// Reads by `read`, and records the bytes.
    fn read_by(
        &self,
        buf: &mut ReadBuf<'_>,
        read: impl FnOnce(&mut ReadBuf<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let before = buf.filled().len();
        self.is_reading.store(true, Release);
        let outcome = read(buf).and_then(|()| self.read(buf.filled().len() - before));
        self.is_reading.store(false, Release);
        outcome
    }

    fn read(&self, count: usize) -> io::Result<()> {
        if count > 0 {
            self.asked.store(0, Relaxed);
        }
        if self.unanswered.fetch_add(count, Relaxed) + count > MAX_REPLY {
            self.is_cut.store(true, Relaxed);
            return Err(too_large("redis sent a reply of more than 16 MiB"));
        }
        Ok(())
    }

    /// Records that bytes were written.
    fn record_write(&self) {
        let now = self.start.elapsed().as_micros() as u64 + 1;
        let _ = self.asked.compare_exchange(0, now, Relaxed, Relaxed);
    }

    /// Records that a whole reply came.
    pub(super) fn end_reply(&self) {
        self.unanswered.store(0, Relaxed);
    }

    /// Explains the loss of a connection that no server has closed: the reply to another call was
    /// too large.
    pub(super) fn explain(&self, error: RedisError) -> RedisError {
        match self.is_cut.load(Relaxed) && error.is_connection_dropped() {
            true => too_large("redis sent a reply of more than 16 MiB to another call").into(),
            false => error,
        }
    }

    /// Returns the time since bytes were written at `asked`.
    fn waited_since(&self, asked: u64) -> Duration {
        match asked {
            0 => Duration::ZERO,
            asked => self.start.elapsed().saturating_sub(Duration::from_micros(asked - 1)),
        }
    }
}

fn too_large(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

/// A stream of the application, which others may read ahead.
pub(super) struct Dialed(Arc<Mutex<Ahead>>, Arc<Traffic>);

pub(super) struct Ahead {
    stream: Box<dyn Stream>,
    /// Wakes the task that reads the replies.
    waker: Option<Waker>,
    bytes: Vec<u8>,
    error: Option<io::Error>,
}

/// Looks at a connection.
#[derive(Clone)]
pub(super) enum Look {
    Wire(Weak<Wire>),
    Dialed(Weak<Mutex<Ahead>>),
}

impl Look {
    /// The time for which the other side has sent nothing, though it was asked.
    pub(super) fn silent_for(&self, traffic: &Traffic) -> Duration {
        let asked = traffic.asked.load(Relaxed);
        let waited = traffic.waited_since(asked);
        if waited.is_zero() || self.has_unread() {
            return Duration::ZERO;
        }
        // Another thread may read them, or have read them meanwhile.
        let was_read = traffic.is_reading.load(Acquire) || traffic.asked.load(Relaxed) != asked;
        if was_read { Duration::ZERO } else { waited }
    }

    /// Returns true if bytes wait to be read, or the end.
    pub(super) fn has_unread(&self) -> bool {
        match self {
            Self::Wire(wire) => wire.upgrade().is_none_or(|wire| wire.has_unread()),
            Self::Dialed(ahead) => ahead.upgrade().is_none_or(|ahead| lock(&ahead).has_unread()),
        }
    }
}

impl Ahead {
    fn has_unread(&mut self) -> bool {
        if !self.bytes.is_empty() {
            return true;
        }
        let Some(waker) = self.waker.clone() else { return true };
        let mut bytes = [0; 4_096];
        let mut buf = ReadBuf::new(&mut bytes);
        // The budget of this task says nothing about the stream.
        let reading = poll_fn(|cx| Pin::new(&mut *self.stream).poll_read(cx, &mut buf));
        let mut reading = pin!(unconstrained(reading));
        let Poll::Ready(outcome) = reading.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return false;
        };
        self.error = outcome.err();
        self.bytes.extend_from_slice(buf.filled());
        waker.wake();
        true
    }
}

impl Dialed {
    pub(super) fn new(stream: Box<dyn Stream>, traffic: &Arc<Traffic>) -> (Self, Look) {
        let ahead =
            Arc::new(Mutex::new(Ahead { stream, waker: None, bytes: Vec::new(), error: None }));
        let below = Look::Dialed(Arc::downgrade(&ahead));
        (Self(ahead, Arc::clone(traffic)), below)
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ahead = lock(&self.0);
        if let Some(error) = ahead.error.take() {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        if ahead.bytes.is_empty() {
            ahead.waker = Some(cx.waker().clone());
            ready!(Pin::new(&mut *ahead.stream).poll_read(cx, buf))?;
        } else {
            let count = ahead.bytes.len().min(buf.remaining());
            buf.put_slice(&ahead.bytes[..count]);
            ahead.bytes.drain(..count);
        }
        Poll::Ready(self.1.read(buf.filled().len() - before))
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut *lock(&self.0).stream).poll_write(cx, bytes))?;
        self.1.record_write();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0).stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0).stream).poll_shutdown(cx)
    }
}

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
    /// Returns true if the other side has closed the socket, whether or not the runtime has
    /// noticed. `says_goodbye`: bytes that wait to be read are its goodbye, and no reply.
    pub(super) fn is_closed(&self, says_goodbye: bool) -> bool {
        match on!(self, stream => SockRef::from(stream).peek(&mut [MaybeUninit::uninit()])) {
            Ok(0) => true,
            Ok(_) => says_goodbye,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }

    /// Returns true if bytes wait to be read, or the end.
    fn has_unread(&self) -> bool {
        on!(self, stream => SockRef::from(stream).peek(&mut [MaybeUninit::uninit()])).is_ok()
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
    traffic: Arc<Traffic>,
}

impl OwnedWire {
    /// Returns the socket for the task, and for those who look at it. It closes with the task.
    pub(super) fn new(wire: Wire, traffic: &Arc<Traffic>) -> (Self, Weak<Wire>) {
        let wire = Arc::new(wire);
        let below = Arc::downgrade(&wire);
        (Self { wire, traffic: Arc::clone(traffic) }, below)
    }
}

impl AsyncRead for OwnedWire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(on!(&*self.wire, stream => stream.poll_read_ready(cx)))?;
            match self.traffic.read_by(buf, |buf| self.wire.try_read(buf)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
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
                outcome => {
                    self.traffic.record_write();
                    return Poll::Ready(outcome);
                }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::net::TcpListener;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::advance;

    use super::super::times::MAX_SILENCE;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_silent_until_bytes_arrive_even_if_nobody_reads_them() {
        let (traffic, (own, mut other)) = (Arc::default(), duplex(64));
        let (mut stream, look) = Dialed::new(Box::new(own), &traffic);
        let silent_for = || look.silent_for(&traffic);
        // As the task does that reads the replies.
        let mut byte = [0];
        let mut reading = tokio::spawn(async move {
            stream.write_all(b"a").await.expect("room");
            stream.read_exact(&mut byte).await.expect("bytes");
            stream.read_exact(&mut byte).await.expect("bytes");
        });
        let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut reading).poll(cx).is_pending()));
        assert!(pending.await);
        tokio::task::yield_now().await;
        advance(MAX_SILENCE).await;
        assert_eq!(silent_for(), MAX_SILENCE);
        other.write_all(b"b").await.expect("room");
        assert_eq!(silent_for(), Duration::ZERO);
        tokio::task::yield_now().await;
        advance(MAX_SILENCE).await;
        assert_eq!(silent_for(), Duration::ZERO, "nothing was asked since");
        other.write_all(b"c").await.expect("room");
        reading.await.expect("no byte is lost");
    }

    #[tokio::test]
    async fn a_socket_is_silent_until_bytes_arrive_even_if_nobody_reads_them() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (mut other, _) = listener.accept().expect("a connection");
        let traffic = Arc::default();
        let (mut stream, wire) = OwnedWire::new(Wire::Tcp(stream), &traffic);
        let look = Look::Wire(wire);
        assert_eq!(look.silent_for(&traffic), Duration::ZERO);
        stream.write_all(b"a").await.expect("room");
        while look.silent_for(&traffic) == Duration::ZERO {
            std::thread::yield_now();
        }
        other.write_all(b"b").expect("room");
        // The runtime has no turn in between.
        while look.silent_for(&traffic) > Duration::ZERO {
            std::thread::yield_now();
        }
        stream.read_exact(&mut [0]).await.expect("bytes");
    }

    /// The system pauses a thread that has taken the reply from the socket.
    #[tokio::test]
    async fn a_socket_that_a_thread_reads_is_not_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (mut other, _) = listener.accept().expect("a connection");
        let traffic = Arc::default();
        let (mut stream, wire) = OwnedWire::new(Wire::Tcp(stream), &traffic);
        let look = Look::Wire(wire);
        stream.write_all(b"a").await.expect("room");
        other.write_all(b"b").expect("room");
        on!(&*stream.wire, stream => stream.readable().await).expect("bytes");
        let (mut bytes, seen) = ([0], Cell::new(Duration::MAX));
        let read = |buf: &mut ReadBuf<'_>| {
            stream.wire.try_read(buf)?;
            seen.set(look.silent_for(&traffic));
            Ok(())
        };
        traffic.read_by(&mut ReadBuf::new(&mut bytes), read).expect("bytes");
        assert_eq!((bytes, seen.get()), (*b"b", Duration::ZERO));
    }
}
