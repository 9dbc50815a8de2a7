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
use super::hearing::{Hearing, heard};
use super::lock::lock;
use super::pool::Pool;
use super::times::{MAX_CONNECTION_WAIT, OVERDUE_AFTER};

impl Pool {
    /// Uses the connections of a bb8 pool: to a server, or to a sentinel's primary. A cluster needs
    /// a `redis-cluster://` address. Clones of a connection must be cheap, and share one socket.
    /// [`bb8_redis`](crate::bb8_redis) has the matching versions.
    ///
    /// Leave `test_on_check_out` on: it is the only way in which the managers of the crate `redis`
    /// notice a dead connection. A blocking command would block all others.
    ///
    /// If a server is found to be read-only, as after a failover, the crate replaces every
    /// connection of the pool. It makes at most ten new connections a second, and returns the new
    /// ones to the pool when it has replaced them all.
    ///
    /// There are three differences from [`connect`](Self::connect). A silent connection stays until
    /// bb8's own test fails. An error does not say why connecting failed. If the pool gives no
    /// connection for 0.4 s, a call that waits for so long blames the server, even if the
    /// application uses them all. So give a call at least that time.
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
    /// What is heard over all its connections.
    hearing: Arc<Hearing>,
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
        let (backoff, hearing) = (Mutex::default(), Arc::default());
        let (replacing, last_checked_out) = (Mutex::default(), Mutex::default());
        Self { pool, backoff, hearing, replacing, last_checked_out }
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
        lock(&self.backoff).last_error = None;
        Ok(self.share(connection))
    }

    /// Lets the next calls share a clone of a connection of the pool.
    fn share(self: &Arc<Self>, connection: M::Connection) -> Arc<Bb8Connection<M>> {
        let (pool, has_failed) = (Arc::downgrade(self), AtomicBool::new(false));
        let (last_use, hearing) = (Mutex::new(Instant::now()), Arc::clone(&self.hearing));
        let shared = Bb8Connection { connection, pool, last_use, hearing, has_failed };
        let shared = Arc::new(shared);
        *lock(&self.last_checked_out) = Some(Arc::clone(&shared));
        shared
    }

    /// Replaces the connections of the pool, unless a task is already doing it.
    fn replace_all(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut replacing = lock(&self.replacing);
        if is_running(&replacing) {
            return;
        }
        let error = Error::new(ErrorKind::Infrastructure, "a connection of the bb8 pool failed");
        lock(&self.backoff).record_unusable(Instant::now(), error);
        let pool = Arc::clone(self);
        *replacing = Some(runtime.spawn(async move {
            // They stay checked out, so that the pool returns each of the others once. But those
            // that calls find to be useless, too, go back.
            let mut replaced = Vec::new();
            for _ in 0..pool.pool.state().connections {
                // Connecting succeeds even while the server is read-only, so the pause comes first.
                let pause = lock(&pool.backoff).retry_at(Instant::now());
                sleep_until(pause.unwrap_or_else(Instant::now)).await;
                lock(&pool.backoff).record_attempt(Instant::now());
                replaced.extend(pool.replace_one().await);
                replaced.retain(|(_, shared)| shared.is_alive());
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

    /// Checks a connection out, and replaces it. The next calls use the new one.
    async fn replace_one(self: &Arc<Self>) -> Option<Replaced<'_, M>> {
        let mut old = timeout(MAX_CONNECTION_WAIT, self.pool.get()).await.ok()?.ok()?;
        let connecting = self.pool.dedicated_connection();
        *old = timeout(MAX_CONNECTION_WAIT, connecting).await.ok()?.ok()?;
        let shared = self.share(old.clone());
        Some((old, shared))
    }
}

/// A new connection that is checked out, and its clone that calls share.
type Replaced<'a, M> = (bb8::PooledConnection<'a, M>, Arc<Bb8Connection<M>>);

fn is_running(task: &Option<JoinHandle<()>>) -> bool {
    task.as_ref().is_some_and(|task| !task.is_finished())
}

impl<M> Connections for Bb8Pool<M>
where
    M: ManageConnection<Error = RedisError, Connection: ConnectionLike + Clone + Sync>,
{
    fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
        // The server may have closed an idle connection, so the pool must test it. While
        // connections are replaced, the pool only has old ones.
        let is_ready = |last: &Arc<Bb8Connection<M>>| {
            let is_recent = || lock(&last.last_use).elapsed() < MAX_CONNECTION_WAIT;
            last.is_alive() && (is_recent() || is_running(&lock(&self.replacing)))
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
        Facts { failure, silent_for: self.hearing.silent_for() }
    }
}

/// A connection of a bb8 pool.
struct Bb8Connection<M: ManageConnection> {
    connection: M::Connection,
    pool: Weak<Bb8Pool<M>>,
    last_use: Mutex<Instant>,
    hearing: Arc<Hearing>,
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
        heard(&self.hearing, async move {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::{RedisFuture, Value, cmd};
    use tokio::time::sleep;

    use super::*;

    /// A connection to the server that was named when it was made.
    #[derive(Clone)]
    struct Fake {
        is_writable: bool,
    }

    impl ConnectionLike for Fake {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            let read_only = b"-READONLY You can't write against a read only replica.\r\n";
            let reply = if self.is_writable { &b"+OK\r\n"[..] } else { read_only };
            Box::pin(async { redis::parse_redis_value(reply)?.extract_error() })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("one command is sent")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    /// Connects to a server that is writable, or to one that is not.
    struct Manager(Arc<AtomicBool>);

    impl ManageConnection for Manager {
        type Connection = Fake;
        type Error = RedisError;

        async fn connect(&self) -> Result<Fake, RedisError> {
            Ok(Fake { is_writable: self.0.load(Relaxed) })
        }

        async fn is_valid(&self, _: &mut Fake) -> Result<(), RedisError> {
            Ok(())
        }

        fn has_broken(&self, _: &mut Fake) -> bool {
            false
        }
    }

    /// Each check-out of a call moves a connection to the end of the pool's queue. So a task that
    /// replaces the first one again and again does not reach them all.
    #[tokio::test(start_paused = true)]
    async fn each_connection_to_a_demoted_server_is_replaced_once() {
        const SIZE: u32 = 3;
        for queue in [bb8::QueueStrategy::Fifo, bb8::QueueStrategy::Lifo] {
            for _ in 0..100 {
                let is_writable = Arc::new(AtomicBool::new(false));
                let pool = bb8::Pool::builder().max_size(SIZE).min_idle(SIZE).queue_strategy(queue);
                let pool =
                    pool.build(Manager(Arc::clone(&is_writable))).await.expect("connections");
                is_writable.store(true, Relaxed);
                let calls = Pool::from_bb8(pool.clone());
                let mut failed = 0;
                for _ in 0..5 {
                    let deadline = Instant::now() + Duration::from_millis(10);
                    let call = calls.send(cmd("SET").arg("key").take(), "key", deadline);
                    failed += u32::from(call.await.is_err());
                    sleep(MAX_CONNECTION_WAIT + Duration::from_millis(50)).await;
                }
                assert_eq!(failed, 1);
                let mut all = Vec::new();
                for _ in 0..SIZE {
                    all.push(pool.get().await.expect("a connection"));
                }
                assert!(all.iter().all(|one| one.is_writable));
            }
        }
    }
}
