//! Opens the socket of a connection, and runs the task that reads it.
//!
//! The client's own way to open one says nothing when a connection of RESP2 is lost. Here, the end
//! of the reading task shows that, in every protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisConnectionInfo, RedisResult};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::dialer::{Dialer, Resolver, Stream, addresses};
use super::times::KEEPALIVE;
use super::tls::TlsParams;

/// A connection of the client. Clones share it, and it closes when the last of them is dropped.
#[derive(Clone)]
pub(super) struct Socket {
    pub(super) connection: MultiplexedConnection,
    _reading: Arc<Reading>,
}

/// The task that reads the socket. Its drop ends the task, even while a silent server takes nothing.
struct Reading(JoinHandle<()>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Socket {
    /// Begins a connection over `stream`. `guard` is dropped when the connection is lost, and even
    /// when its runtime ends.
    pub(super) async fn new(
        stream: Box<dyn Stream>,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
        guard: impl Send + 'static,
    ) -> RedisResult<Self> {
        let (connection, reading) =
            MultiplexedConnection::new_with_config(settings, stream, config).await?;
        let reading = tokio::spawn(async move {
            let _guard = guard;
            reading.await;
        });
        Ok(Self { connection, _reading: Arc::new(Reading(reading)) })
    }
}

/// Opens a stream to a server: to the first of its IP addresses that answers.
pub(super) async fn stream(
    addr: &ConnectionAddr,
    tls: &TlsParams,
    resolver: Option<&Resolver>,
    dialer: Option<&Dialer>,
) -> RedisResult<Box<dyn Stream>> {
    let (host, port) = match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host, *port)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            return Ok(Box::new(tokio::net::UnixStream::connect(path).await?));
        }
        _ => return Err(io::Error::from(io::ErrorKind::Unsupported).into()),
    };
    if let Some(dialer) = dialer {
        return Ok(dialer.dial(host.clone(), port).await?);
    }
    let each = addresses(host, port, resolver).await?.into_iter();
    let each = each.map(|address| Box::pin(connect(address, host, tls)));
    match each.len() {
        0 => Err((redis::ErrorKind::InvalidClientConfig, "no address found for host").into()),
        _ => Ok(select_ok(each).await?.0),
    }
}

async fn connect(address: SocketAddr, host: &str, tls: &TlsParams) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    tls.encrypt(host, stream).await
}
