//! Opens sockets by the application's own function.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};

/// A socket, whatever it is.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

type Dialed = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// Opens a socket to a host and port, anew for each connection.
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

    /// A connection over such a socket, whose task ends with it. The caller bounds the time.
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
