//! Connections of a bb8 pool that the application owns.
//!
//! Calls share a clone of one connection until a call misses its deadline or loses it, or until no
//! call has used it for half a second. Then the pool returns the next connection, which it may test
//! with a PING.
//!
//! Only the manager of a bb8 pool can mark a connection as broken. The managers of the crate
//! `redis` never do. So if a server is found to be read-only, a task replaces the connections
//! inside the pool. It checks out one after another, and replaces it with a new one.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use bb8_redis::bb8::{self, ManageConnection, RunError};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisResult};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::backoff::{Backoff, with_patience};
use super::connection::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use super::error::{Error, ErrorKind};
use super::error_reply;
use super::fault::Facts;
use super::given_connection::observed;
use super::lock::lock;
use super::pool::Pool;
use super::times::{MAX_CONNECTION_WAIT, OVERDUE_AFTER};
use super::wire::Traffic;

impl Pool {
    /// Uses the connections of a bb8 pool: to a server, or to a sentinel's primary. A cluster needs
    /// a `redis-cluster://` address. Clones of a connection must be cheap, and share one socket.
    /// [`bb8_redis`](crate::bb8_redis) has the matching versions.
    ///
    /// Leave `test_on_check_out` on: it is the only way in which the managers of the crate `redis`
    /// notice a dead connection. A blocking command would block all others.
    ///
    /// If a server is found to be read-only, as after a failover, the crate replaces every
    /// connection of the pool. It makes at most ten new connections a second. There are three
    /// differences from [`connect`](Self::connect). A silent connection stays until bb8's own test
    /// fails. An error does not say why connecting failed. If the pool gives no
    /// connection for 0.4 s, the server is blamed, even if the application uses them all.
    ///
    /// Keep the client's own response timeout longer than the time for a command, as with
    /// [`from_connection`](Self::from_connection).
    pub fn from_bb8<M>(pool: bb8::Pool<M>) -> Self
    where
        M: ManageConnection<Error = RedisError, Connection: ConnectionLike + Clone + Sync>,
    {
        Self::new(Arc::new(Bb8Pool::new(pool)), None)
    }
}

/// The connections of a bb8 pool.
pub(super) struct Bb8Pool<M: ManageConnection> {
    pool: bb8::Pool<M>,
    backoff: Mutex<Backoff>,
    /// The calls and replies over all its connections.
    traffic: Arc<Traffic>,
    /// The task that replaces the connections, or the last such task.
    replacing: Mutex<Option<JoinHandle<()>>>,
    /// The connection that was checked out last, unless it was lost.
    last_checked_out: Mutex<Option<Arc<Bb8Connection<M>>>>,
}

impl<M> Bb8Pool<M>
where
    M: ManageConnection<Error = RedisError, Connection: ConnectionLike + Clone + Sync>,
{
    pub(super) fn new(pool: bb8::Pool<M>) -> Self {
        let (backoff, traffic) = (Mutex::default(), Arc::default());
        let (replacing, last_checked_out) = (Mutex::default(), Mutex::default());
        Self { pool, backoff, traffic, replacing, last_checked_out }
    }

    /// Asks the pool for a connection until it returns one. Calls then share a clone of it.
    async fn check_out(self: &Arc<Self>) -> Result<Arc<Bb8Connection<M>>, Error> {
        let asking = async {
            loop {
                match self.pool.get().await {
                    Ok(connection) => return Ok(connection.clone()),
                    Err(RunError::User(error)) => {
                        return Err(error_reply::from_redis_error(error, []));
                    }
                    Err(RunError::TimedOut) => {}
                }
            }
        };
        let overdue = || {
            let message = "the bb8 pool gave no connection in time";
            let error = Error::new(ErrorKind::Infrastructure, message);
            lock(&self.backoff).record_overdue(error);
        };
        let connection = with_patience(asking, OVERDUE_AFTER, overdue).await?;
        let (pool, has_failed) = (Arc::downgrade(self), AtomicBool::new(false));
        let (last_use, traffic) = (Mutex::new(Instant::now()), Arc::clone(&self.traffic));
        let checked_out = Bb8Connection { connection, pool, last_use, traffic, has_failed };
        let checked_out = Arc::new(checked_out);
        lock(&self.backoff).last_error = None;
        *lock(&self.last_checked_out) = Some(Arc::clone(&checked_out));
        Ok(checked_out)
    }

    /// Replaces as many connections as the pool has, unless a task is already doing it.
    fn replace_all(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut replacing = lock(&self.replacing);
        if replacing.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let error = Error::new(ErrorKind::Infrastructure, "a connection of the bb8 pool failed");
        lock(&self.backoff).record_unusable(Instant::now(), error);
        let pool = Arc::clone(self);
        *replacing = Some(runtime.spawn(async move {
            for _ in 0..pool.pool.state().connections {
                // Connecting succeeds even while the server is read-only, so the pause comes first.
                let pause = lock(&pool.backoff).retry_at(Instant::now());
                sleep_until(pause.unwrap_or_else(Instant::now)).await;
                lock(&pool.backoff).record_attempt(Instant::now());
                pool.replace_one().await;
            }
        }));
    }

    /// Records the outcome of a call.
    fn record<T>(self: &Arc<Self>, outcome: &RedisResult<T>) {
        let Err(error) = outcome else { return };
        if !error.is_unrecoverable_error() {
            return;
        }
        *lock(&self.last_checked_out) = None;
        // With a test on each checkout, bb8 finds a dead connection itself.
        if !self.pool.config().test_on_check_out {
            self.replace_all();
        }
    }

    async fn replace_one(&self) {
        let Ok(Ok(mut old)) = timeout(MAX_CONNECTION_WAIT, self.pool.get()).await else { return };
        if let Ok(Ok(new)) = timeout(MAX_CONNECTION_WAIT, self.pool.dedicated_connection()).await {
            *old = new;
        }
    }
}

impl<M> Connections for Bb8Pool<M>
where
    M: ManageConnection<Error = RedisError, Connection: ConnectionLike + Clone + Sync>,
{
    fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
        // The server may have closed an idle connection, so the pool must test it.
        let is_ready = |last: &Arc<Bb8Connection<M>>| {
            last.is_alive() && lock(&last.last_use).elapsed() < MAX_CONNECTION_WAIT
        };
        let connection = lock(&self.last_checked_out).clone().filter(is_ready)?;
        *lock(&connection.last_use) = Instant::now();
        Some(connection as Arc<dyn SharedConnection>)
    }

    fn connection(self: Arc<Self>, _: u16) -> ConnectionFuture {
        Box::pin(async move { Ok(self.check_out().await? as Arc<dyn SharedConnection>) })
    }

    fn size(&self) -> usize {
        (self.pool.state().connections as usize).max(1)
    }

    fn facts(&self, _: u16) -> Facts {
        let failure = lock(&self.backoff).last_error.clone();
        Facts { failure, silent_for: self.traffic.silent_for() }
    }
}

/// A connection of a bb8 pool.
struct Bb8Connection<M: ManageConnection> {
    connection: M::Connection,
    pool: Weak<Bb8Pool<M>>,
    last_use: Mutex<Instant>,
    traffic: Arc<Traffic>,
    /// True after a call got no reply in time, or the server was found to be read-only.
    has_failed: AtomicBool,
}

impl<M> Bb8Connection<M>
where
    M: ManageConnection<Error = RedisError, Connection: ConnectionLike + Clone + Sync>,
{
    /// Returns a call that records its outcome.
    fn recorded<T: Send + 'static>(
        &self,
        call: impl Future<Output = RedisResult<T>> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = RedisResult<T>> + Send>> {
        let pool = self.pool.upgrade();
        observed(&self.traffic, async move {
            let outcome = call.await;
            if let Some(pool) = pool {
                pool.record(&outcome);
            }
            outcome
        })
    }
}

impl<M> SharedConnection for Bb8Connection<M>
where
    M: ManageConnection<Error = RedisError, Connection: ConnectionLike + Clone + Sync>,
{
    fn send(&self, command: Cmd) -> ReplyFuture {
        let mut connection = self.connection.clone();
        self.recorded(async move { connection.req_packed_command(&command).await })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        let mut connection = self.connection.clone();
        self.recorded(
            async move { connection.req_packed_commands(&commands, 0, commands.len()).await },
        )
    }

    fn is_alive(&self) -> bool {
        !self.has_failed.load(Relaxed)
    }

    /// Asks the pool again even in a busy process: this costs at most a PING.
    fn record_timeout(&self) {
        self.has_failed.store(true, Relaxed);
    }

    fn mark_read_only(&self) {
        self.has_failed.store(true, Relaxed);
        if let Some(pool) = self.pool.upgrade() {
            pool.replace_all();
        }
    }
}
