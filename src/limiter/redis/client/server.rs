//! A server, and the way to connect to it.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult, cmd,
};
use tokio::select;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::address::Host;
use super::connection::{Connection, ConnectionState, Health, ServerHealth};
use super::dialer::{Dialer, Resolver};
use super::error;
use super::greeting::{Greeting, ServerKind};
use super::probe;
use super::times::{KEEPALIVE, SLOW_HANDSHAKE};
use super::tls::TlsParams;
use crate::sync::{Mutex, lock};
use crate::{Error, ErrorKind};

/// A server to connect to.
#[derive(Clone)]
pub(super) struct Server {
    info: ConnectionInfo,
    login: Login,
    pub(super) connect_timeout: Duration,
    resolver: Option<Resolver>,
    dialer: Option<Dialer>,
    health: Arc<ServerHealth>,
    /// The kind that the server must be of.
    kind: ServerKind,
}

/// Settings for connecting to the servers of one address.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsParams,
    pub(super) login: Login,
    /// The longest time of an attempt to connect.
    pub(super) timeout: Duration,
    pub(super) resolver: Option<Resolver>,
    pub(super) dialer: Option<Dialer>,
}

/// User, password and database of connections, which may change while a pool is used. Clones share
/// them.
#[derive(Clone)]
pub(super) struct Login(Arc<Mutex<LoginState>>);

struct LoginState {
    settings: RedisConnectionInfo,
    /// The number of changes of user and password.
    changes: u64,
}

impl Connector {
    /// Returns the server at `host`. Connects to nothing yet.
    pub(super) fn server(&self, host: &Host) -> Result<Server, Error> {
        self.server_at(self.tls.addr(host))
    }

    /// Returns the server behind a Unix socket. Connects to nothing yet.
    pub(super) fn socket(&self, path: PathBuf) -> Result<Server, Error> {
        self.server_at(ConnectionAddr::Unix(path))
    }

    fn server_at(&self, addr: ConnectionAddr) -> Result<Server, Error> {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = addr.into_connection_info().map_err(invalid_address)?;
        let info = info.set_tcp_settings(tcp);
        // An address that cannot be used fails now, and not at each attempt to connect.
        let with_login = info.clone().set_redis_settings(self.login.settings());
        Client::open(with_login).map_err(invalid_address)?;
        let (resolver, dialer) = (self.resolver.clone(), self.dialer.clone());
        let (connect_timeout, login) = (self.timeout, self.login.clone());
        let (health, kind) = (Arc::default(), ServerKind::Plain);
        Ok(Server { info, login, connect_timeout, resolver, dialer, health, kind })
    }
}

impl Login {
    pub(super) fn new(settings: RedisConnectionInfo) -> Self {
        // The client reports a lost connection only with RESP3.
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        Self(Arc::new(Mutex::new(LoginState { settings, changes: 0 })))
    }

    /// Sets the user and the password of all later connections.
    pub(super) fn set(&self, user: &str, password: &str) {
        let mut state = lock(&self.0);
        state.settings = state.settings.clone().set_username(user).set_password(password);
        state.changes += 1;
    }

    pub(super) fn settings(&self) -> RedisConnectionInfo {
        lock(&self.0).settings.clone()
    }

    pub(super) fn changes(&self) -> u64 {
        lock(&self.0).changes
    }
}

/// A failed attempt to connect, with its address, since sentinels may now name another server.
pub(super) struct Failure {
    pub(super) address: String,
    pub(super) cause: Error,
}

impl Server {
    /// Returns the same server with another kind.
    pub(super) fn of_kind(self, kind: ServerKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns host and port, for errors.
    pub(super) fn address(&self) -> String {
        format!("redis at {}", self.addr())
    }

    /// Returns the number of changes of the user or the password.
    pub(super) fn login_changes(&self) -> u64 {
        self.login.changes()
    }

    /// Returns true if connections were given up as silent, and no reply has come since.
    pub(super) fn is_silent(&self) -> bool {
        self.health.is_silent()
    }

    /// Leaves the server: no call uses a connection to it any more.
    pub(super) fn leave(&self) {
        self.health.leave();
    }

    pub(super) async fn connect(&self) -> Result<Connection, Error> {
        let health = Arc::new(Health::new(&self.health));
        let retire_on_drop = RetireOnDrop(Arc::clone(&health));
        let opened = self.open(move |push| {
            if push.kind == PushKind::Disconnection {
                retire_on_drop.0.retire(ConnectionState::Closed);
            }
        });
        let (socket, greeting) = opened.await?;
        let (address, is_primary) = (Arc::new(self.addr().clone()), greeting.is_primary());
        Ok(Connection { socket, health, address, is_primary, made_at: Instant::now() })
    }

    /// Opens a socket, and reads the greeting of the server. `on_push` gets all push messages, such
    /// as the notice of a lost connection.
    pub(super) async fn open(
        &self,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<(MultiplexedConnection, Greeting), Error> {
        let deadline = Instant::now() + self.connect_timeout;
        let mut socket = select! {
            biased;
            socket = self.open_socket(on_push) => match socket {
                Ok(socket) => socket,
                Err(error) => return Err(self.connect_error(error, deadline).await),
            },
            error = self.find_server_without_tls(deadline) => return Err(error),
        };
        match timeout_at(deadline, self.greet(&mut socket)).await {
            Ok(greeting) => Ok((socket, greeting?)),
            Err(_) => {
                let message = "redis did not send its greeting in time";
                Err(Error::new(ErrorKind::Infrastructure, message))
            }
        }
    }

    /// Asks for the kind of the server, and chooses the database. The client would forget the code
    /// of a refusal.
    async fn greet(&self, socket: &mut MultiplexedConnection) -> Result<Greeting, Error> {
        let greeting = Greeting::of(socket).await.map_err(|error| self.refusal(error))?;
        greeting.expect_kind(self.kind)?;
        let database = self.login.settings().db();
        if database != 0 {
            let selected = cmd("SELECT").arg(database).exec_async(socket).await;
            selected.map_err(|error| self.refusal(error))?;
        }
        Ok(greeting)
    }

    async fn open_socket(
        &self,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            // Each call has its own deadline.
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                on_push(push);
                Ok::<_, SendError>(())
            });
        if let Some(resolver) = &self.resolver {
            config = config.set_dns_resolver(resolver.clone());
        }
        if let Some(dialer) = &self.dialer {
            let settings = self.login.settings().set_db(0);
            let connected = dialer.connect(self.addr(), &settings, config);
            let in_time = timeout(self.connect_timeout, connected).await;
            return in_time
                .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        }
        let info = self.info.clone().set_redis_settings(self.login.settings().set_db(0));
        Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Returns only if the TLS handshake takes long, and the server is found to have no TLS.
    async fn find_server_without_tls(&self, deadline: Instant) -> Error {
        if self.uses_tls() {
            sleep(SLOW_HANDSHAKE.min(self.connect_timeout / 3)).await;
            let resolver = self.resolver.as_ref();
            if probe::answers_without_tls(self.addr(), resolver, deadline).await {
                let message = "this server answers without TLS: turn on its TLS, or write redis \
                    in place of rediss";
                return Error::new(ErrorKind::Configuration, message);
            }
        }
        pending().await
    }

    /// Returns the error of a failed attempt to connect. If needed, it probes the server for TLS,
    /// at most until `deadline`.
    async fn connect_error(&self, error: RedisError, deadline: Instant) -> Error {
        if self.uses_tls() {
            return match is_tls_failure(&error) {
                true => {
                    Error::new(ErrorKind::Configuration, "TLS with redis failed").with_source(error)
                }
                false => self.refusal(error),
            };
        }
        // A server with TLS may also answer with bytes that are not a reply.
        let is_odd = error.is_connection_dropped() || error.kind() == redis::ErrorKind::Parse;
        if is_odd
            && self.dialer.is_none()
            && !error.is_connection_refusal()
            && probe::answers_with_tls(self.addr(), self.resolver.as_ref(), deadline).await
        {
            let message = "this server wants TLS: write rediss in place of redis";
            return Error::new(ErrorKind::Configuration, message).with_source(error);
        }
        self.refusal(error)
    }

    /// Makes the error of a command of connecting. It shows no password.
    fn refusal(&self, error: RedisError) -> Error {
        error::from_redis_error(error, self.login.settings().password())
    }

    fn uses_tls(&self) -> bool {
        matches!(self.addr(), ConnectionAddr::TcpTls { .. })
    }

    fn addr(&self) -> &ConnectionAddr {
        self.info.addr()
    }
}

/// Makes the error of an address that cannot be used.
fn invalid_address(error: RedisError) -> Error {
    Error::new(ErrorKind::Configuration, "the address of redis cannot be used").with_source(error)
}

/// Returns true if TLS failed: the certificate is not trusted, or the server does not use TLS. A
/// failure of the network does not count.
fn is_tls_failure(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Io
        && error::has_cause(error, |cause| cause.kind() == io::ErrorKind::InvalidData)
}

/// Marks the connection as closed when it is dropped. The task that reads the socket drops it, even
/// when its runtime ends.
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
