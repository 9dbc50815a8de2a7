//! Opens the socket of a connection, and runs the task that reads it.
//!
//! The client's own way to open one says nothing when a connection of RESP2 is lost. Here, the end
//! of the reading task shows that, in every protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisConnectionInfo, RedisResult};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::dialer::{Dialer, Resolver, Stream, addresses};
use super::times::{HEAD_START, KEEPALIVE};
use super::tls::TlsParams;
use super::wire::{Dialed, Look, OwnedWire, Traffic, Wire};

/// A connection of the client. Clones share it, and it closes when the last of them is dropped.
#[derive(Clone)]
pub(super) struct Socket {
    pub(super) connection: MultiplexedConnection,
    reading: Arc<ReadTask>,
    look: Look,
    uses_tls: bool,
    traffic: Arc<Traffic>,
    /// The IP address of the server, if its host was looked up.
    pub(super) peer: Option<SocketAddr>,
}

/// An open stream to a server.
pub(super) struct Opened {
    stream: Box<dyn Stream>,
    /// The socket below it.
    look: Look,
    traffic: Arc<Traffic>,
    pub(super) peer: Option<SocketAddr>,
}

/// The task that reads the socket. Its drop ends the task, even if a silent server takes nothing.
struct ReadTask(JoinHandle<()>);

impl Drop for ReadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Socket {
    /// Begins a connection over an open stream.
    pub(super) async fn new(
        opened: Opened,
        uses_tls: bool,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let Opened { stream, look, traffic, peer } = opened;
        let (connection, reading) =
            MultiplexedConnection::new_with_config(settings, stream, config).await?;
        let reading = Arc::new(ReadTask(tokio::spawn(reading)));
        Ok(Self { connection, reading, look, uses_tls, traffic, peer })
    }

    /// Returns true if the connection is lost: the task that reads the socket has ended, even with
    /// its runtime.
    pub(super) fn has_ended(&self) -> bool {
        self.reading.0.is_finished()
    }

    /// Records that a reply came, or the replies to all commands of one write.
    pub(super) fn record_reply(&self) {
        self.traffic.end_reply();
    }

    /// The traffic of the connection.
    pub(super) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// The time for which the server has sent nothing, though it was asked.
    pub(super) fn silent_for(&self) -> Duration {
        self.look.silent_for(&self.traffic)
    }

    /// Returns true if bytes of the server wait to be read, or the end.
    pub(super) fn has_unread(&self) -> bool {
        self.look.has_unread()
    }

    /// Asks the system if the server has closed the connection. False for a socket of the
    /// application, which nobody can ask.
    pub(super) fn is_closed(&self) -> bool {
        // With TLS, a server says goodbye. Each call that waits for a reply holds a clone.
        let says_goodbye = self.uses_tls && Arc::strong_count(&self.reading) == 1;
        match &self.look {
            Look::Wire(wire) => wire.upgrade().is_none_or(|wire| wire.is_closed(says_goodbye)),
            Look::Dialed(_) => false,
        }
    }
}

/// Opens a stream to a server: to the first of its IP addresses that answers and is not in `left`.
/// Those in `silent` begin later than the others.
pub(super) async fn open(
    addr: &ConnectionAddr,
    tls: &TlsParams,
    resolver: Option<&Resolver>,
    dialer: Option<&Dialer>,
    left: &[SocketAddr],
    silent: &[SocketAddr],
) -> RedisResult<Opened> {
    let traffic = Arc::default();
    let (host, port) = match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host, *port)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let wire = Wire::Unix(UnixStream::connect(path).await?);
            let (stream, wire) = OwnedWire::new(wire, &traffic);
            let (stream, look) = (Box::new(stream), Look::Wire(wire));
            return Ok(Opened { stream, look, traffic, peer: None });
        }
        _ => return Err(io::Error::from(io::ErrorKind::Unsupported).into()),
    };
    if let Some(dialer) = dialer {
        let stream = dialer.dial(host.clone(), port).await?;
        let (stream, look) = Dialed::new(stream, &traffic);
        return Ok(Opened { stream: Box::new(stream), look, traffic, peer: None });
    }
    let each = addresses(host, port, resolver).await?.into_iter();
    let each: Vec<_> = each.filter(|address| !left.contains(address)).collect();
    let have_others = each.iter().any(|address| !silent.contains(address));
    let connect = |address| async move {
        if have_others && silent.contains(&address) {
            sleep(HEAD_START).await;
        }
        connect(address, host, tls).await
    };
    let each: Vec<_> = each.into_iter().map(|address| Box::pin(connect(address))).collect();
    match each.len() {
        0 if left.is_empty() => {
            Err((redis::ErrorKind::InvalidClientConfig, "no address found for host").into())
        }
        0 => Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into()),
        _ => Ok(select_ok(each).await?.0),
    }
}

async fn connect(address: SocketAddr, host: &str, tls: &TlsParams) -> io::Result<Opened> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    let traffic = Arc::default();
    let (stream, wire) = OwnedWire::new(Wire::Tcp(stream), &traffic);
    let stream = tls.encrypt(host, stream).await?;
    Ok(Opened { stream, look: Look::Wire(wire), traffic, peer: Some(address) })
}
