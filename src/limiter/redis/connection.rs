//! Connections that are shared, and known to be alive without asking.
//!
//! bb8's own way is to send a PING with every checkout. What replaces it is in `health.rs`.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use bb8_redis::bb8::{ErrorSink, ManageConnection};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::AsyncDNSResolver;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisFuture, RedisResult, Value, io::tcp::TcpSettings,
};
use tokio::time::Instant;

use super::health::{Health, ServerHealth, State};

/// Where connections lead, and what is known of the way there.
#[derive(Clone, Debug)]
pub(super) struct Server {
    client: Client,
    connect_timeout: Duration,
    resolver: Option<Resolver>,
    trouble: LastTrouble,
    health: Arc<ServerHealth>,
}

impl Server {
    /// Opens nothing; fails if the address does not parse.
    pub(super) fn new(
        info: ConnectionInfo,
        connect_timeout: Duration,
        resolver: Option<Resolver>,
    ) -> RedisResult<Self> {
        // RESP3 carries the notice of a lost connection.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info
            .set_redis_settings(settings)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info)?;
        Ok(Self {
            client,
            connect_timeout,
            resolver,
            trouble: LastTrouble::default(),
            health: Arc::default(),
        })
    }

    /// The last failure to connect, as it will be known.
    pub(super) fn trouble(&self) -> LastTrouble {
        self.trouble.clone()
    }
}

type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Where a host name leads, asked anew for each connection.
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

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// The last failure to connect, which bb8 tells nobody but its sink; none since the last success.
#[derive(Clone, Debug, Default)]
pub(super) struct LastTrouble(Arc<Mutex<Option<RedisError>>>);

impl LastTrouble {
    pub(super) fn get(&self) -> Option<RedisError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, error: Option<RedisError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

impl ErrorSink<RedisError> for LastTrouble {
    fn sink(&self, error: RedisError) {
        self.set(Some(error));
    }

    fn boxed_clone(&self) -> Box<dyn ErrorSink<RedisError>> {
        Box::new(self.clone())
    }
}

impl ManageConnection for Server {
    type Connection = Line;
    type Error = RedisError;

    async fn connect(&self) -> RedisResult<Line> {
        let health = Arc::new(Health::new(&self.health));
        let watcher = Watcher(Arc::clone(&health));
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            // Each call has a deadline of its own.
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    watcher.0.end(State::Closed);
                }
                Ok::<_, redis::aio::SendError>(())
            });
        if let Some(resolver) = &self.resolver {
            config = config.set_dns_resolver(resolver.clone());
        }
        let wire = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        self.trouble.set(None);
        Ok(Line { wire, health })
    }

    async fn is_valid(&self, line: &mut Line) -> RedisResult<()> {
        if !line.is_alive() {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        Ok(())
    }

    fn has_broken(&self, line: &mut Line) -> bool {
        !line.is_alive()
    }
}

/// One socket. Clones share it, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Line {
    wire: MultiplexedConnection,
    health: Arc<Health>,
}

impl Line {
    /// Whether nothing speaks against another call over this connection.
    pub(super) fn is_alive(&self) -> bool {
        self.health.is_usable()
    }

    /// Notes that a call over this connection met its deadline unanswered.
    pub(super) fn record_timeout(&self, sent: Instant) {
        self.health.record_timeout(sent);
    }

    /// Notes that the server takes no writes.
    pub(super) fn mark_read_only(&self) {
        self.health.end(State::ReadOnly);
    }
}

impl ConnectionLike for Line {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let outcome = self.wire.send_packed_command(cmd).await;
            self.health.record(&outcome);
            outcome
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let outcome = self.wire.send_packed_commands(pipeline, offset, count).await;
            self.health.record(&outcome);
            outcome
        })
    }

    fn get_db(&self) -> i64 {
        self.wire.get_db()
    }
}

/// Lives in the task that reads the socket, and ends with it: also where a runtime takes that task along.
struct Watcher(Arc<Health>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.end(State::Closed);
    }
}
