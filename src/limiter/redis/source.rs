//! Where connections come from, whatever their type: a bb8 pool that is built on first use.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bb8_redis::bb8::{self, ManageConnection, RunError};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::connection::{LastTrouble, Line, Server};
use super::error;
use crate::{Class, Error};

/// How long a connection is waited for; it also shapes how soon bb8 tries again.
const CHECKOUT: Duration = Duration::from_millis(500);

/// The future of a connection.
pub(super) type Connecting =
    Pin<Box<dyn Future<Output = Result<Arc<dyn SharedConnection>, Error>> + Send>>;

/// The future of a reply.
pub(super) type Reply = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Gives connections.
pub(super) trait Source: Send + Sync {
    /// Waits for a connection; the error says why there is none.
    fn connection(self: Arc<Self>) -> Connecting;
    /// The number of connections, at least 1.
    fn size(&self) -> usize;
    /// The instant to give up on a reply, given the caller's deadline.
    fn reply_deadline(&self, deadline: Instant) -> Instant;
    /// The error of a call that got neither a connection nor a reply in time.
    fn no_reply(&self) -> Error;
}

/// One connection, shared by many calls.
pub(super) trait SharedConnection: Send + Sync {
    /// Sends one command.
    fn send(&self, command: Cmd) -> Reply;
    /// Whether another call may use it without asking the pool first.
    fn is_alive(&self) -> bool;
    /// Records that a call sent at `sent` has no reply at its deadline, which is now.
    fn record_timeout(&self, sent: Instant);
    /// Records that the server takes no writes.
    fn mark_read_only(&self);
}

/// A pool, and whether the runtime that it was built in still runs.
struct Kept<M: ManageConnection> {
    pool: bb8::Pool<M>,
    home: Option<mpsc::Sender<Infallible>>,
}

type Build<M> = Box<dyn Fn() -> bb8::Pool<M> + Send + Sync>;

/// A bb8 pool whose connections are shared by clone.
pub(super) struct Shared<M: ManageConnection> {
    /// Host and port, for errors.
    address: String,
    kept: Mutex<Option<Kept<M>>>,
    /// Builds the pool on first use, since that needs a runtime, and again when that runtime has ended: bb8 would wait
    /// for ever for the connections that it was making.
    build: Option<Build<M>>,
    trouble: LastTrouble,
    response_timeout: Option<Duration>,
    signs: Signs<M::Connection>,
}

impl Shared<Server> {
    /// So many connections of the crate's own kind, to `address`.
    pub(super) fn to(
        address: String,
        server: Server,
        size: u32,
        response_timeout: Option<Duration>,
    ) -> Self {
        Self {
            address,
            kept: Mutex::default(),
            trouble: server.trouble(),
            build: Some(Box::new(move || {
                bb8::Pool::builder()
                    .max_size(size)
                    .min_idle(size)
                    .connection_timeout(CHECKOUT)
                    // Connections go when they are dead, and no task outlives the pool to see to their age.
                    .max_lifetime(None)
                    .idle_timeout(None)
                    .error_sink(Box::new(server.trouble()))
                    .build_unchecked(server.clone())
            })),
            response_timeout,
            signs: Signs {
                is_alive: Line::is_alive,
                record_timeout: Line::record_timeout,
                mark_read_only: Line::mark_read_only,
            },
        }
    }
}

impl<M: ManageConnection<Error = RedisError>> Shared<M> {
    /// The connections of a pool that is there already.
    pub(super) fn of(pool: bb8::Pool<M>) -> Self {
        Self {
            address: String::from("redis"),
            kept: Mutex::new(Some(Kept { pool, home: None })),
            build: None,
            trouble: LastTrouble::default(),
            response_timeout: None,
            signs: Signs { is_alive: |_| false, record_timeout: |_, _| (), mark_read_only: |_| () },
        }
    }

    fn pool(&self) -> bb8::Pool<M> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |kept: &Kept<M>| kept.home.as_ref().is_none_or(|home| !home.is_closed());
        match (&*kept, &self.build) {
            (Some(kept), _) if usable(kept) => kept.pool.clone(),
            (_, Some(build)) => {
                let (home, mut end) = mpsc::channel::<Infallible>(1);
                // Ends with the last use of the pool, or with the runtime.
                tokio::spawn(async move { end.recv().await });
                kept.insert(Kept { pool: build(), home: Some(home) }).pool.clone()
            }
            (_, None) => unreachable!("a pool that was given has no home to lose"),
        }
    }

    /// bb8 keeps the cause to itself, so the last failure to connect tells the class.
    fn no_connection(&self) -> Option<Error> {
        let cause = error::call(self.trouble.get()?);
        let message = format!("no connection to {}", self.address);
        Some(Error::new(cause.class(), message).because(cause))
    }
}

impl<M> Source for Shared<M>
where
    M: ManageConnection<Error = RedisError>,
    M::Connection: ConnectionLike + Clone + Sync,
{
    fn connection(self: Arc<Self>) -> Connecting {
        Box::pin(async move {
            match timeout(CHECKOUT, self.pool().get()).await {
                Ok(Ok(connection)) => {
                    Ok(Arc::new(Held { connection: connection.clone(), signs: self.signs })
                        as Arc<dyn SharedConnection>)
                }
                Ok(Err(RunError::User(error))) => Err(error::call(error)),
                Ok(Err(RunError::TimedOut)) | Err(_) => {
                    Err(self.no_connection().unwrap_or_else(|| {
                        let message = format!("no connection to {} in time", self.address);
                        Error::new(Class::Infrastructure, message)
                    }))
                }
            }
        })
    }

    fn size(&self) -> usize {
        (self.pool().state().connections as usize).max(1)
    }

    fn reply_deadline(&self, deadline: Instant) -> Instant {
        match self.response_timeout {
            Some(timeout) => deadline.min(Instant::now() + timeout),
            None => deadline,
        }
    }

    fn no_reply(&self) -> Error {
        self.no_connection()
            .unwrap_or_else(|| Error::new(Class::Infrastructure, "redis did not answer in time"))
    }
}

/// What a kind of connection knows of its own state.
struct Signs<C> {
    is_alive: fn(&C) -> bool,
    record_timeout: fn(&C, Instant),
    mark_read_only: fn(&C),
}

impl<C> Clone for Signs<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Signs<C> {}

/// One connection.
struct Held<C> {
    connection: C,
    signs: Signs<C>,
}

impl<C> SharedConnection for Held<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send(&self, command: Cmd) -> Reply {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection.req_packed_command(&command).await })
    }

    fn is_alive(&self) -> bool {
        (self.signs.is_alive)(&self.connection)
    }

    fn record_timeout(&self, sent: Instant) {
        (self.signs.record_timeout)(&self.connection, sent);
    }

    fn mark_read_only(&self) {
        (self.signs.mark_read_only)(&self.connection);
    }
}
