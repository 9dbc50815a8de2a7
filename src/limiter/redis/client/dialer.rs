//! The application's functions that find a server's addresses, or open sockets to it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisConnectionInfo, RedisFuture, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};

type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves host names, again for each connection.
#[derive(Clone)]
pub(super) struct Resolver(Arc<dyn Fn(String, u16) -> Resolved + Send + Sync>);

impl Resolver {
    pub(super) fn new<F>(resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Arc::new(move |host, port| Box::pin(resolve(host, port))))
    }

    /// Returns the addresses of a host.
    pub(super) fn addresses(&self, host: String, port: u16) -> Resolved {
        (self.0)(host, port)
    }
}

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let resolved = self.addresses(host.to_owned(), port);
        Box::pin(async move { Ok(Box::new(resolved.await?.into_iter()) as Box<_>) })
    }
}

/// A socket of any type.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

type Dialed = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// Opens a socket to a host and port, again for each connection.
#[derive(Clone)]
pub(super) struct Dialer(Arc<dyn Fn(String, u16) -> Dialed + Send + Sync>);

impl Dialer {
    pub(super) fn new<F, S>(dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self(Arc::new(move |host, port| {
            let dialed = dial(host, port);
            Box::pin(async move { Ok(Box::new(dialed.await?) as Box<dyn Socket>) })
        }))
    }

    /// Connects over a new socket. The task that reads it ends with the connection. The caller
    /// limits the time.
    pub(super) async fn connect(
        &self,
        addr: &ConnectionAddr,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let ConnectionAddr::Tcp(host, port) = addr else {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        };
        let socket = (self.0)(host.clone(), *port).await?;
        let (connection, reading) =
            MultiplexedConnection::new_with_config(settings, socket, config).await?;
        tokio::spawn(reading);
        Ok(connection)
    }
}
