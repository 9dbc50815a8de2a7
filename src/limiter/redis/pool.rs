//! One pool of connections for many limiters.
//!
//! Connections are shared, not checked out: a call takes a clone of one and gives it back at once, so
//! that many calls travel on one socket. The pool is lazy: it connects when it is first asked, and a
//! server that is away fails decisions, never the start of an application.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bb8_redis::bb8::{self, ErrorSink, ManageConnection, RunError};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};

use super::connection::{Line, Server};
use super::failure;
use crate::{Class, Error};

/// Connections that the crate's own pool keeps.
const SIZE: u32 = 2;

/// How long the crate's own pool waits for a connection; it also shapes how soon it tries again.
const CHECKOUT: Duration = Duration::from_millis(500);

/// Connections to Redis, shared by every clone and by many limiters.
#[derive(Clone)]
pub struct Pool {
    source: Arc<dyn Source>,
}

impl Pool {
    /// Connections to the server at `url`, such as `redis://127.0.0.1:6379`. Connects on first use.
    ///
    /// # Errors
    ///
    /// If `url` does not parse.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let server = Server::new(url).map_err(|error| {
            Error::new(Class::Configuration, "the address of redis does not parse").because(error)
        })?;
        let trouble = LastTrouble::default();
        let source = Shared {
            pool: OnceLock::new(),
            build: Mutex::new(Some((server, trouble.clone()))),
            trouble,
            overdue: Line::overdue,
            answered: AtomicU64::new(0),
        };
        Ok(Self { source: Arc::new(source) })
    }

    /// Connections of any bb8 pool whose connections are cheap clones that share one socket or know
    /// a whole cluster: a server, a cluster, a sentinel's primary.
    ///
    /// Leave `test_on_check_out` on: the managers that come with redis notice a dead connection in no
    /// other way. The pool belongs to limiters alone, since a blocking command would hold them all up.
    #[must_use]
    pub fn from_bb8<M>(pool: bb8::Pool<M>) -> Self
    where
        M: ManageConnection<Error = RedisError>,
        M::Connection: ConnectionLike + Clone + Sync,
    {
        let source = Shared {
            pool: OnceLock::from(pool),
            build: Mutex::new(None),
            trouble: LastTrouble::default(),
            overdue: |_: &M::Connection| (),
            answered: AtomicU64::new(0),
        };
        Self { source: Arc::new(source) }
    }

    /// Sends one command, and waits for the answer until `deadline`.
    pub(super) async fn call(&self, command: Cmd, deadline: Instant) -> Result<Value, Failure> {
        Arc::clone(&self.source).call(command, deadline).await
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server does not know the script: nothing was done.
    NoScript,
    Error(Error),
}

type Called = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

/// Where connections come from, whatever their type.
trait Source: Send + Sync {
    fn call(self: Arc<Self>, command: Cmd, deadline: Instant) -> Called;
}

/// A bb8 pool whose connections are shared by clone.
struct Shared<M: ManageConnection> {
    pool: OnceLock<bb8::Pool<M>>,
    /// What the pool is built of on first use, since that needs a runtime.
    build: Mutex<Option<(M, LastTrouble)>>,
    trouble: LastTrouble,
    /// Tells a connection that a call over it was not answered in time.
    overdue: fn(&M::Connection),
    /// Calls that were answered: whether a silence is the server's or a queue's.
    answered: AtomicU64,
}

impl<M> Shared<M>
where
    M: ManageConnection<Error = RedisError>,
{
    fn pool(&self) -> &bb8::Pool<M> {
        self.pool.get_or_init(|| {
            let build = self.build.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (manager, trouble) = build.expect("built once");
            bb8::Pool::builder()
                .max_size(SIZE)
                .min_idle(SIZE)
                .connection_timeout(CHECKOUT)
                .error_sink(Box::new(trouble))
                .build_unchecked(manager)
        })
    }

    async fn connection(&self, deadline: Instant) -> Result<M::Connection, Failure>
    where
        M::Connection: Clone,
    {
        let answered = self.answered.load(Relaxed);
        match timeout_at(deadline, self.pool().get()).await {
            Ok(Ok(connection)) => Ok(connection.clone()),
            Ok(Err(RunError::User(error))) => Err(Failure::Error(failure::call(error))),
            Ok(Err(RunError::TimedOut)) | Err(_) => {
                let error = if self.answered.load(Relaxed) > answered {
                    Error::new(Class::Saturation, "no connection came free in time")
                } else {
                    self.trouble.error()
                };
                Err(Failure::Error(error))
            }
        }
    }
}

impl<M> Source for Shared<M>
where
    M: ManageConnection<Error = RedisError>,
    M::Connection: ConnectionLike + Clone + Sync,
{
    fn call(self: Arc<Self>, command: Cmd, deadline: Instant) -> Called {
        Box::pin(async move {
            let mut connection = self.connection(deadline).await?;
            match timeout_at(deadline, connection.req_packed_command(&command)).await {
                Ok(outcome) => {
                    self.answered.fetch_add(1, Relaxed);
                    outcome.and_then(Value::extract_error).map_err(|error| match error.kind() {
                        ErrorKind::Server(ServerErrorKind::NoScript) => Failure::NoScript,
                        _ => Failure::Error(failure::call(error)),
                    })
                }
                Err(_) => {
                    (self.overdue)(&connection);
                    let error = Error::new(Class::Infrastructure, "redis did not answer in time");
                    Err(Failure::Error(error))
                }
            }
        })
    }
}

/// The last failure to connect, which bb8 tells nobody but its sink.
#[derive(Clone, Debug, Default)]
struct LastTrouble(Arc<Mutex<Option<RedisError>>>);

impl LastTrouble {
    fn error(&self) -> Error {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last.map(failure::call) {
            Some(error) => Error::new(error.class(), "no connection to redis").because(error),
            None => Error::new(Class::Infrastructure, "no connection to redis in time"),
        }
    }
}

impl ErrorSink<RedisError> for LastTrouble {
    fn sink(&self, error: RedisError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn boxed_clone(&self) -> Box<dyn ErrorSink<RedisError>> {
        Box::new(self.clone())
    }
}
