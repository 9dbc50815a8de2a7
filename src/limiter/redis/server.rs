//! A server, and how to connect to it.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::io::AsyncDNSResolver;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, RedisFuture, RedisResult,
};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::error;
use super::greeting::Greeting;
use super::health::{ConnectionState, Health, ServerHealth};
use crate::{Error, ErrorKind};

/// How long a connection may be idle before the system probes it, so that firewalls on the way
/// do not forget it.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server that can be connected to.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    pub(super) connect_timeout: Duration,
    resolver: Option<Resolver>,
    health: Arc<ServerHealth>,
}

impl Server {
    /// Connects to nothing yet. Fails if the address cannot be used.
    pub(super) fn new(
        addr: ConnectionAddr,
        settings: RedisConnectionInfo,
        connect_timeout: Duration,
        resolver: Option<Resolver>,
    ) -> Result<Self, Error> {
        // RESP3 carries the notice of a lost connection.
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = addr.into_connection_info().map_err(invalid_address)?;
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = Client::open(info).map_err(invalid_address)?;
        Ok(Self { client, connect_timeout, resolver, health: Arc::default() })
    }

    /// Host and port, for errors.
    pub(super) fn address(&self) -> String {
        format!("redis at {}", self.client.get_connection_info().addr())
    }

    pub(super) async fn connect(&self) -> Result<Connection, Error> {
        let deadline = Instant::now() + self.connect_timeout;
        let health = Arc::new(Health::new(&self.health));
        let retire_on_drop = RetireOnDrop(Arc::clone(&health));
        let mut socket =
            self.open_socket(retire_on_drop).await.map_err(|error| self.connect_error(error))?;
        let greeting = timeout_at(deadline, Greeting::of(&mut socket)).await;
        let greeting =
            greeting.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        greeting.map_err(error::from_redis_error)?.expect_plain_server()?;
        Ok(Connection::new(socket, health))
    }

    async fn open_socket(
        &self,
        retire_on_drop: RetireOnDrop,
    ) -> RedisResult<MultiplexedConnection> {
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            // Each call has a deadline of its own.
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    retire_on_drop.0.retire(ConnectionState::Closed);
                }
                Ok::<_, SendError>(())
            });
        if let Some(resolver) = &self.resolver {
            config = config.set_dns_resolver(resolver.clone());
        }
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// The error of a failed attempt to connect.
    fn connect_error(&self, error: RedisError) -> Error {
        let address = self.client.get_connection_info().addr();
        if matches!(address, ConnectionAddr::TcpTls { .. }) && is_tls_failure(&error) {
            return Error::new(ErrorKind::Configuration, "TLS with redis failed")
                .with_source(error);
        }
        error::from_redis_error(error)
    }
}

/// The error of an address that cannot be used.
fn invalid_address(error: RedisError) -> Error {
    Error::new(ErrorKind::Configuration, "the address of redis cannot be used").with_source(error)
}

/// Whether TLS failed: the certificate is not trusted, or the server does not use TLS.
/// A failure of the network is none of TLS.
fn is_tls_failure(error: &RedisError) -> bool {
    type SharedError = Arc<dyn std::error::Error + Send + Sync>;
    let Some(cause) = error.source().filter(|_| error.kind() == redis::ErrorKind::Io) else {
        return false;
    };
    let cause = cause.downcast_ref::<SharedError>().map_or(cause, |shared| &**shared);
    let io = cause.downcast_ref::<io::Error>();
    io.is_none_or(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// Fails unless rustls has a crypto provider; without one, each attempt to connect would panic.
#[cfg(feature = "rustls")]
pub(super) fn check_crypto_provider() -> Result<(), Error> {
    use rustls::{ClientConfig, crypto::CryptoProvider};
    // rustls installs its only provider by itself if there is exactly one, and panics otherwise.
    if CryptoProvider::get_default().is_some()
        || std::panic::catch_unwind(ClientConfig::builder).is_ok()
    {
        return Ok(());
    }
    let message = "rediss:// needs a crypto provider: install one before the pool is built, such as \
        rustls::crypto::ring::default_provider().install_default()";
    Err(Error::new(ErrorKind::Configuration, message))
}

/// Without the feature there is no TLS.
#[cfg(not(feature = "rustls"))]
pub(super) fn check_crypto_provider() -> Result<(), Error> {
    let message = "rediss:// needs the feature rustls of tower-sluice";
    Err(Error::new(ErrorKind::Configuration, message))
}

type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves host names, anew for each connection.
#[derive(Clone)]
pub(super) struct Resolver(Arc<dyn Fn(String, u16) -> Resolved + Send + Sync>);

impl Resolver {
    pub(super) fn new<F>(resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Arc::new(move |host, port| Box::pin(resolve(host, port))))
    }
}

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let resolved = (self.0)(host.to_owned(), port);
        Box::pin(async move { Ok(Box::new(resolved.await?.into_iter()) as Box<_>) })
    }
}

/// Marks the connection closed when it is dropped: with the task that reads the socket, also when
/// its runtime ends.
struct RetireOnDrop(Arc<Health>);

impl Drop for RetireOnDrop {
    fn drop(&mut self) {
        self.0.retire(ConnectionState::Closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_failures_are_distinguished_from_network_failures() {
        let table = [
            (io::ErrorKind::InvalidData, true),
            (io::ErrorKind::ConnectionRefused, false),
            (io::ErrorKind::TimedOut, false),
            (io::ErrorKind::Other, false),
        ];
        for (kind, is_tls) in table {
            assert_eq!(is_tls_failure(&io::Error::new(kind, "why").into()), is_tls, "{kind:?}");
        }
        assert!(!is_tls_failure(&(redis::ErrorKind::Io, "broken pipe").into()));
        assert!(!is_tls_failure(&(redis::ErrorKind::AuthenticationFailed, "no").into()));
    }
}
