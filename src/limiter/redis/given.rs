//! Connections of a bb8 pool that the application brings.
//!
//! In bb8 only a pool's manager can say that a connection is broken, and the managers that come with redis never do.
//! So when a server turns out to be read-only, the pool's connections are replaced where they are: each is checked out
//! in turn, and exchanged for a new one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bb8_redis::bb8::{self, ManageConnection, RunError};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};

use super::backoff::Backoff;
use super::error;
use super::source::{Connecting, LONGEST_WAIT, Reply, SharedConnection, Source};
use crate::{Class, Error};

/// The connections of a bb8 pool.
pub(super) struct Given<M: ManageConnection> {
    pool: bb8::Pool<M>,
    backoff: Mutex<Backoff>,
    /// Whether the connections are being replaced.
    replacing: AtomicBool,
}

impl<M> Given<M>
where
    M: ManageConnection<Error = RedisError>,
{
    pub(super) fn new(pool: bb8::Pool<M>) -> Self {
        Self { pool, backoff: Mutex::default(), replacing: AtomicBool::new(false) }
    }

    /// Replaces as many connections as the pool has, unless that is under way.
    fn replace_all(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.replacing.swap(true, Relaxed) {
            return;
        }
        let replacement = Replacement(Arc::clone(self));
        self.backoff().fail(Instant::now());
        runtime.spawn(async move {
            let given = &replacement.0;
            for _ in 0..given.pool.state().connections {
                // Connecting succeeds also while the server is read-only, so the pause comes before.
                let pause = given.backoff().wait(Instant::now());
                sleep_until(pause.unwrap_or_else(Instant::now)).await;
                given.backoff().begin(Instant::now());
                given.replace_one().await;
            }
        });
    }

    async fn replace_one(&self) {
        let Ok(Ok(mut old)) = timeout(LONGEST_WAIT, self.pool.get()).await else { return };
        if let Ok(Ok(new)) = timeout(LONGEST_WAIT, self.pool.dedicated_connection()).await {
            *old = new;
        }
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replacement that is under way, until it is dropped.
struct Replacement<M: ManageConnection>(Arc<Given<M>>);

impl<M: ManageConnection> Drop for Replacement<M> {
    fn drop(&mut self) {
        self.0.replacing.store(false, Relaxed);
    }
}

impl<M> Source for Given<M>
where
    M: ManageConnection<Error = RedisError>,
    M::Connection: ConnectionLike + Clone + Sync,
{
    fn connection(self: Arc<Self>) -> Connecting {
        Box::pin(async move {
            match timeout(LONGEST_WAIT, self.pool.get()).await {
                Ok(Ok(connection)) => {
                    let connection = connection.clone();
                    let pool = Arc::clone(&self);
                    let given =
                        GivenConnection { connection, pool, is_used: AtomicBool::new(false) };
                    Ok(Arc::new(given) as Arc<dyn SharedConnection>)
                }
                Ok(Err(RunError::User(error))) => Err(error::call(error)),
                Ok(Err(RunError::TimedOut)) | Err(_) => {
                    Err(Error::new(Class::Infrastructure, "no connection to redis in time"))
                }
            }
        })
    }

    fn size(&self) -> usize {
        (self.pool.state().connections as usize).max(1)
    }

    fn no_reply(&self) -> Error {
        Error::new(Class::Infrastructure, "redis did not answer in time")
    }
}

/// A connection of a given pool.
struct GivenConnection<M: ManageConnection> {
    connection: M::Connection,
    pool: Arc<Given<M>>,
    /// Whether a call has used it since the pool gave it.
    is_used: AtomicBool,
}

impl<M> SharedConnection for GivenConnection<M>
where
    M: ManageConnection<Error = RedisError>,
    M::Connection: ConnectionLike + Clone + Sync,
{
    fn send(&self, command: Cmd) -> Reply {
        self.is_used.store(true, Relaxed);
        let (mut connection, pool) = (self.connection.clone(), Arc::clone(&self.pool));
        Box::pin(async move {
            let outcome = connection.req_packed_command(&command).await;
            if let Err(error) = &outcome {
                // With a test on each checkout bb8 finds a dead connection itself.
                let is_lost =
                    error.is_unrecoverable_error() && !pool.pool.config().test_on_check_out;
                if is_lost || error::met_read_only(error) {
                    pool.replace_all();
                }
            }
            outcome
        })
    }

    /// Only the pool can say, so each call asks it.
    fn is_alive(&self) -> bool {
        !self.is_used.load(Relaxed)
    }

    fn record_timeout(&self, _sent: Instant) {}

    fn mark_read_only(&self) {
        self.pool.replace_all();
    }
}
