//! A server, and the way to connect to it.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::SendError;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind as RedisErrorKind, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, RedisResult, Value, cmd,
};
use tokio::select;
use tokio::time::{Instant, sleep, timeout_at};

use super::address::Host;
use super::connection::{Connection, ConnectionHealth, Diagnosis, ServerHealth};
use super::dialer::{Dialer, Resolver};
use super::error::{Error, ErrorKind};
use super::error_reply;
use super::event::Listener;
use super::greeting::{Greeting, ServerKind};
use super::lock::lock;
use super::probe;
use super::socket::{self, Socket};
use super::times::{MAX_CONNECTION_WAIT, SLOW_HANDSHAKE};
use super::tls::TlsParams;

/// A server to connect to.
#[derive(Clone)]
pub(super) struct Server {
    addr: ConnectionAddr,
    pub(super) connector: Connector,
    pub(super) health: Arc<ServerHealth>,
    /// The kind that the server must be of.
    kind: ServerKind,
}

/// Settings for connecting to the servers of one address.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsParams,
    pub(super) login: Login,
    /// The protocol that the address asks for; `None`: RESP2 only if a server refuses RESP3.
    pub(super) protocol: Option<ProtocolVersion>,
    /// The number of connections to each server, for each runtime.
    pub(super) size: usize,
    /// The longest time of an attempt to connect.
    pub(super) timeout: Duration,
    pub(super) resolver: Option<Resolver>,
    pub(super) dialer: Option<Dialer>,
    pub(super) listener: Listener,
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
    pub(super) fn server(&self, host: &Host, kind: ServerKind) -> Server {
        self.server_at(self.tls.addr(host), kind)
    }

    /// Returns the server behind a Unix socket. Connects to nothing yet.
    pub(super) fn socket(&self, path: PathBuf) -> Server {
        self.server_at(ConnectionAddr::Unix(path), ServerKind::Plain)
    }

    fn server_at(&self, addr: ConnectionAddr, kind: ServerKind) -> Server {
        Server { addr, connector: self.clone(), health: Arc::default(), kind }
    }
}

impl Login {
    pub(super) fn new(settings: RedisConnectionInfo) -> Self {
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
pub(super) struct ConnectFailure {
    pub(super) address: String,
    pub(super) cause: Error,
}

impl Server {
    /// Returns host and port, for errors.
    pub(super) fn address(&self) -> String {
        format!("redis at {}", self.addr)
    }

    pub(super) async fn connect(&self) -> Result<Connection, Error> {
        let health = Arc::new(ConnectionHealth::new(&self.health));
        let (socket, greeting) = self.open(|_| {}).await?;
        if self.kind == ServerKind::Plain && greeting.is_replica() {
            let message = "this server is a replica, and its address leads to no primary";
            // An address that has led to replicas alone is wrong. Otherwise, a failover goes on.
            let kind = match self.health.has_served.load(Relaxed) {
                true => ErrorKind::Infrastructure,
                false => ErrorKind::Configuration,
            };
            return Err(Error::new(kind, message));
        }
        let (address, is_primary) = (Arc::new(self.addr.clone()), greeting.is_primary());
        self.health.has_served.store(true, Relaxed);
        let keys_apart = greeting.protocol == ProtocolVersion::RESP2;
        Ok(Connection { socket, health, address, is_primary, keys_apart })
    }

    /// Opens a socket, and reads the greeting of the server. `on_push` gets all push messages.
    ///
    /// If a name has several addresses, a replica among them is left for the next one: one that
    /// says its role, or one that has refused a write, as long as another address answers.
    ///
    /// A server that refuses `HELLO` is asked by RESP2. A server that ends at this moment closes
    /// the connection, too. So one that closes it is asked a second time, here or by a probe.
    ///
    /// By RESP2 a server is asked for its role. A proxy that closes at this question is not asked
    /// again, until a write is refused with `READONLY`.
    pub(super) async fn open(
        &self,
        on_push: impl Fn(PushInfo) + Clone + Send + Sync + 'static,
    ) -> Result<(Socket, Greeting), Error> {
        let deadline = Instant::now() + self.connector.timeout;
        let has_database = self.connector.login.settings().db() != 0;
        let may_ask = has_database || !self.health.closes_at_role.load(Relaxed);
        let mut way = match self.connector.protocol {
            Some(ProtocolVersion::RESP2) => Way::Resp2 { asks_role: may_ask },
            _ => Way::Resp3,
        };
        let seeks_primary = matches!(self.kind, ServerKind::Plain | ServerKind::Primary);
        let mut read_only = lock(&self.health.read_only).filter(|_| seeks_primary);
        let mut left = Vec::from_iter(read_only);
        let (mut was_closed, mut replica) = (self.can_be_probed(), None);
        loop {
            let opened = self.open_by(way, deadline, &left, on_push.clone()).await;
            let (error, refusal) = match (opened, replica.take()) {
                (Ok((socket, greeting)), _) => match socket.peer {
                    Some(peer) if seeks_primary && greeting.is_replica() => {
                        left.push(peer);
                        replica = Some((socket, greeting));
                        continue;
                    }
                    _ => return Ok((socket, greeting)),
                },
                // The primary may be there, and refuses this client.
                (Err((error, _)), Some(_)) if error.kind() == ErrorKind::Configuration => {
                    return Err(error);
                }
                // No other address leads to a primary.
                (Err(_), Some(replica)) => return Ok(replica),
                (Err((error, _)), None)
                    if error.kind() != ErrorKind::Configuration && read_only.take().is_some() =>
                {
                    left.clear();
                    continue;
                }
                (Err(refused), None) => refused,
            };
            let falls_back = self.connector.protocol.is_none() && self.kind == ServerKind::Plain;
            match (refusal, way) {
                (Some(Decline::Closed), Way::Resp3) if !was_closed => was_closed = true,
                (Some(refusal), Way::Resp3) if falls_back => {
                    way = Way::Resp2 { asks_role: may_ask && refusal == Decline::InWords };
                }
                (Some(Decline::Closed), Way::Resp2 { asks_role: true }) if !has_database => {
                    way = Way::Resp2 { asks_role: false };
                }
                _ => return Err(error),
            }
        }
    }

    async fn open_by(
        &self,
        way: Way,
        deadline: Instant,
        left: &[SocketAddr],
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<(Socket, Greeting), Refused> {
        let mut socket = select! {
            biased;
            socket = self.open_socket(way, deadline, left, on_push) => match socket {
                Ok(socket) => socket,
                Err(error) => {
                    let refused = self.refused(error, way, true, deadline).await;
                    if refused.0.kind() == ErrorKind::Infrastructure {
                        self.health.closings.end();
                    }
                    return Err(refused);
                }
            },
            error = self.find_server_without_tls(deadline) => return Err((error, None)),
        };
        match timeout_at(deadline, self.greet(way, &mut socket)).await {
            Ok(Ok(greeting)) => {
                self.health.was_greeted(socket.peer);
                self.health.knows_hello.fetch_or(way == Way::Resp3, Relaxed);
                if way == (Way::Resp2 { asks_role: false }) {
                    self.health.closes_at_role.store(true, Relaxed);
                }
                Ok((socket, greeting.map_err(|error| (error, None))?))
            }
            Ok(Err(error)) => Err(self.refused(error, way, false, deadline).await),
            Err(_) => {
                let message = "redis did not send its greeting in time";
                Err((Error::new(ErrorKind::Infrastructure, message), None))
            }
        }
    }

    /// Opens a socket. With RESP3, the client sends `HELLO` with user and password.
    async fn open_socket(
        &self,
        way: Way,
        deadline: Instant,
        left: &[SocketAddr],
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<Socket> {
        // Each call has its own deadline.
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        if way == Way::Resp3 {
            // The database is chosen when the server is known: see `greet`.
            settings =
                self.connector.login.settings().set_db(0).set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(move |push: PushInfo| {
                on_push(push);
                Ok::<_, SendError>(())
            });
        }
        let (resolver, dialer) = (self.connector.resolver.as_ref(), self.connector.dialer.as_ref());
        let silent = self.health.silent_addresses();
        let opened = async {
            let opened =
                socket::open(&self.addr, &self.connector.tls, resolver, dialer, left, &silent)
                    .await?;
            self.health.await_greeting(opened.peer, Some(Instant::now()));
            // With another command, a connection that is closed at HELLO could not be recognized.
            let settings = settings.set_skip_set_lib_name();
            Socket::new(opened, self.uses_tls(), &settings, config).await
        };
        let in_time = timeout_at(deadline, opened).await;
        in_time.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Logs in, if the client has not done that, asks for the kind of the server, and chooses the
    /// database.
    ///
    /// Envoy forwards `SELECT` over connections that all its clients share. So nothing may send it
    /// before the server is known, not even in one write with `HELLO`.
    async fn greet(&self, way: Way, socket: &mut Socket) -> RedisResult<Result<Greeting, Error>> {
        let closings = self.health.closings.count();
        let settings = self.connector.login.settings();
        let mut greeting = Greeting::default();
        if let (Way::Resp2 { .. }, Some(password)) = (way, settings.password()) {
            let mut command = cmd("AUTH");
            command.arg(user(&settings)).arg(password);
            socket.connection.send_packed_command(&command).await?.extract_error()?;
        }
        if let Way::Resp3 | Way::Resp2 { asks_role: true } = way {
            greeting = Greeting::of(&mut socket.connection).await?;
        }
        if let Way::Resp2 { .. } = way {
            greeting.protocol = ProtocolVersion::RESP2;
            if way == (Way::Resp2 { asks_role: true }) && !greeting.has_role() {
                greeting.ask_role(&mut socket.connection).await?;
            }
            match socket.connection.send_packed_command(&cmd("PING")).await?.extract_error() {
                Err(error) if error.code() != Some("NOPERM") => return Err(error),
                _ => {}
            }
        }
        let fits = greeting.expect_kind(self.kind, settings.db());
        if fits.is_ok() && settings.db() != 0 {
            let mut command = cmd("SELECT");
            command.arg(settings.db());
            let reply = socket.connection.send_packed_command(&command).await;
            self.health.closings.record("SELECT", closings, reply)?.extract_error()?;
        }
        Ok(fits.map(|()| greeting))
    }

    /// Returns only if the TLS handshake takes long, and the server is found to have no TLS.
    async fn find_server_without_tls(&self, deadline: Instant) -> Error {
        if self.uses_tls() {
            sleep(SLOW_HANDSHAKE.min(self.connector.timeout / 3)).await;
            if let Ok([b'+' | b'-', _]) = self.probe(probe::PING, deadline).await {
                let message = match self.kind {
                    ServerKind::Sentinel => "this server answers without TLS: write sentinelTls=no",
                    _ => {
                        "this server answers without TLS: turn on its TLS, or write redis in place \
                         of rediss"
                    }
                };
                return Error::new(ErrorKind::Configuration, message);
            }
        }
        pending().await
    }

    /// Returns the error of a failed attempt to connect: of its first step, or of a later one. If
    /// needed, it asks the server over another socket why, at most until `deadline`.
    async fn refused(
        &self,
        error: RedisError,
        way: Way,
        is_first: bool,
        deadline: Instant,
    ) -> Refused {
        let at_hello = is_first && way == Way::Resp3;
        let wrong = |message, error: RedisError| {
            Error::new(ErrorKind::Configuration, message).with_source(error)
        };
        let settings = self.connector.login.settings();
        // It shows no password.
        let refusal = |error| error_reply::from_redis_error(error, settings.password());
        if self.uses_tls() && is_tls_failure(&error) {
            return (wrong("TLS with redis failed", error), None);
        }
        if error.code().is_some() || error.kind() == RedisErrorKind::RESP3NotSupported {
            // A proxy that does not know AUTH within HELLO asks for a login, too.
            let is_login = error.code() == Some("WRONGPASS")
                || error.code() == Some("NOAUTH") && settings.password().is_none();
            let refusal = refusal(error);
            let is_hello = at_hello && refusal.kind() == ErrorKind::Configuration && !is_login;
            return (refusal, is_hello.then_some(Decline::InWords));
        }
        // A server with TLS may also answer with bytes that are not a reply.
        let is_lost = error.is_connection_dropped() && !error.is_connection_refusal();
        let is_odd = is_lost || error.kind() == RedisErrorKind::Parse;
        let within_reply = |cause: &io::Error| cause.kind() == io::ErrorKind::UnexpectedEof;
        let is_closed = is_lost && !error_reply::has_cause(&error, within_reply);
        if !is_odd {
            return (refusal(error), None);
        }
        if is_closed && !is_first && way == (Way::Resp2 { asks_role: true }) && settings.db() == 0 {
            return (refusal(error), Some(Decline::Closed));
        }
        // Attempts follow each other. They need not all ask over more sockets.
        let known =
            lock(&self.health.diagnosis).filter(|one| one.at.elapsed() < MAX_CONNECTION_WAIT);
        let message = match known {
            Some(known) => known.message,
            None => {
                let has_more = user(&settings).is_some() || settings.db() != 0;
                let at_login = way != Way::Resp3 && has_more;
                // Once it has answered `HELLO`, the network closed the connection, and no proxy.
                let may_refuse = at_hello && !self.health.knows_hello.load(Relaxed);
                let answer = match is_closed && (may_refuse || at_login) {
                    true => self.ping(deadline).await,
                    false => None,
                };
                // The client does not tell a reply that was cut from none. A probe that was late
                // tells nothing.
                if answer == Some(true)
                    && at_hello
                    && self.can_be_probed()
                    && !self.closes_at_hello(deadline).await
                {
                    return (refusal(error), None);
                }
                if answer == Some(true) {
                    let message = if at_hello { CLOSES_AT_HELLO } else { CLOSES_AT_LOGIN };
                    return (wrong(message, error), Some(Decline::Closed));
                }
                let wants_tls = answer.is_none()
                    && self.can_be_probed()
                    // An alert, or a handshake.
                    && matches!(
                        self.probe(probe::CLIENT_HELLO, deadline).await,
                        Ok([0x15 | 0x16, 3])
                    );
                let message = wants_tls.then_some(match self.kind {
                    ServerKind::Sentinel => SENTINEL_WANTS_TLS,
                    _ => WANTS_TLS,
                });
                *lock(&self.health.diagnosis) = Some(Diagnosis { at: Instant::now(), message });
                message
            }
        };
        match message {
            Some(message) => (wrong(message, error), None),
            None => (refusal(error), None),
        }
    }

    /// Asks for a `PONG` over another socket, without a password. Returns false for an outage that
    /// the server reports, and true for any other reply.
    async fn ping(&self, deadline: Instant) -> Option<bool> {
        let way = Way::Resp2 { asks_role: false };
        let asked = async {
            let mut socket = self.open_socket(way, deadline, &[], |_| {}).await?;
            socket.connection.send_packed_command(&cmd("PING")).await
        };
        let reply = timeout_at(deadline, asked).await.ok()?.and_then(Value::extract_error);
        match reply {
            Err(error) if !error_reply::is_reply::<()>(&Err(error.clone())) => None,
            Err(error) => {
                Some(error_reply::from_redis_error(error, []).kind() == ErrorKind::Configuration)
            }
            Ok(_) => Some(true),
        }
    }

    /// Returns true if it closes a new connection after `HELLO`, and sends no byte before.
    async fn closes_at_hello(&self, deadline: Instant) -> bool {
        let answer = self.probe(probe::HELLO, deadline).await;
        answer.is_err_and(|error| RedisError::from(error).is_connection_dropped())
    }

    /// Returns the first bytes of the answer to a question over a new socket without TLS.
    async fn probe(&self, question: &[u8], deadline: Instant) -> io::Result<[u8; 2]> {
        let resolver = self.connector.resolver.as_ref();
        probe::answer(&self.addr, resolver, deadline, question).await
    }

    /// Returns true if probes reach it by TCP as it is.
    fn can_be_probed(&self) -> bool {
        self.connector.dialer.is_none() && matches!(self.addr, ConnectionAddr::Tcp(..))
    }

    fn uses_tls(&self) -> bool {
        matches!(self.addr, ConnectionAddr::TcpTls { .. })
    }
}

/// The way to greet a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By `HELLO 3`.
    Resp3,
    /// By `PING`. The questions for kind and role may come before: `HELLO` without a version, and
    /// `ROLE` if that has no role.
    Resp2 { asks_role: bool },
}

/// The error of an attempt to connect, and the refusal of `HELLO`, if that was why.
type Refused = (Error, Option<Decline>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decline {
    /// By an error that no login causes, and that is not over after a while.
    InWords,
    /// The server closed the connection, but answers a `PING`, or may answer without a question for
    /// its role.
    Closed,
}

const WANTS_TLS: &str = "this server wants TLS: write rediss in place of redis";

const SENTINEL_WANTS_TLS: &str = "this server wants TLS: write rediss in place of redis, or \
    sentinelTls=yes";

const CLOSES_AT_HELLO: &str = "this server closes the connection at HELLO, as twemproxy does: a \
    proxy needs an address of redis:// without protocol=resp3, and serves neither clusters nor \
    sentinels";

const CLOSES_AT_LOGIN: &str = "this server closes the connection when it gets a user or a \
    database, as twemproxy does: write an address without a user and without a database";

/// Returns the user, unless it is the one that a password alone means.
fn user(settings: &RedisConnectionInfo) -> Option<&str> {
    settings.username().filter(|user| *user != "default")
}

/// Returns true if TLS failed: the certificate is not trusted, or the server does not use TLS. A
/// failure of the network does not count.
fn is_tls_failure(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Io
        && error_reply::has_cause(error, |cause| cause.kind() == io::ErrorKind::InvalidData)
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
