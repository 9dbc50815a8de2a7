//! Connections that are shared, and known to be alive without asking.
//!
//! bb8's own way is to send a PING with every checkout. Here three signs that cost nothing tell of a
//! dead connection: the client library's notice that its reader ended, a call that failed beyond
//! repair or met a read-only server, and three calls in a row that nobody answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bb8_redis::bb8::ManageConnection;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, PushKind, RedisError, RedisFuture, RedisResult, ServerErrorKind,
    Value, io::tcp::TcpSettings,
};

/// How many calls in a row may stay unanswered before a connection counts as dead.
const PATIENCE: u32 = 3;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);

/// Where connections lead.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
}

impl Server {
    /// Opens nothing; fails if the address does not parse.
    pub(super) fn new(url: &str) -> RedisResult<Self> {
        let info: ConnectionInfo = url.into_connection_info()?;
        // RESP3 carries the notice of a lost connection.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info
            .set_redis_settings(settings)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self { client: Client::open(info)? })
    }
}

impl ManageConnection for Server {
    type Connection = Line;
    type Error = RedisError;

    async fn connect(&self) -> RedisResult<Line> {
        let pulse = Arc::new(Pulse::default());
        let watcher = Arc::clone(&pulse);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            // Each call has a deadline of its own.
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    watcher.lost.store(true, Relaxed);
                }
                Ok::<_, redis::aio::SendError>(())
            });
        let wire = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Line { wire, pulse })
    }

    async fn is_valid(&self, line: &mut Line) -> RedisResult<()> {
        if line.pulse.is_gone() {
            return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        }
        Ok(())
    }

    fn has_broken(&self, line: &mut Line) -> bool {
        line.pulse.is_gone()
    }
}

/// One socket. Clones share it, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Line {
    wire: MultiplexedConnection,
    pulse: Arc<Pulse>,
}

impl Line {
    /// Notes that a call over this connection met its deadline unanswered.
    pub(super) fn overdue(&self) {
        self.pulse.unanswered.fetch_add(1, Relaxed);
    }
}

impl ConnectionLike for Line {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let outcome = self.wire.send_packed_command(cmd).await;
            self.pulse.note(&outcome);
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
            self.pulse.note(&outcome);
            outcome
        })
    }

    fn get_db(&self) -> i64 {
        self.wire.get_db()
    }
}

/// What is known of one socket.
#[derive(Debug, Default)]
struct Pulse {
    lost: AtomicBool,
    unanswered: AtomicU32,
}

impl Pulse {
    fn note<T: Answer>(&self, outcome: &RedisResult<T>) {
        match outcome {
            Err(error) if error.is_unrecoverable_error() || is_read_only(error) => {
                self.lost.store(true, Relaxed);
            }
            Err(error) if error.is_timeout() => {
                self.unanswered.fetch_add(1, Relaxed);
            }
            Ok(answer) if answer.tells_read_only() => self.lost.store(true, Relaxed),
            _ => self.unanswered.store(0, Relaxed),
        }
    }

    fn is_gone(&self) -> bool {
        self.lost.load(Relaxed) || self.unanswered.load(Relaxed) >= PATIENCE
    }
}

fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ServerErrorKind::ReadOnly.into()
}

/// A reply in which a script may tell, as a string, that the server takes no writes.
trait Answer {
    fn tells_read_only(&self) -> bool;
}

impl Answer for Value {
    fn tells_read_only(&self) -> bool {
        match self {
            Value::Array(elements) => elements.iter().any(Answer::tells_read_only),
            Value::BulkString(text) => text.starts_with(b"READONLY"),
            _ => false,
        }
    }
}

impl Answer for Vec<Value> {
    fn tells_read_only(&self) -> bool {
        self.iter().any(Answer::tells_read_only)
    }
}
