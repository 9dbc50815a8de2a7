//! Connections of a bb8 pool that the application brings.

use std::sync::Arc;

use bb8_redis::bb8::{self, ManageConnection, RunError};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError};
use tokio::time::{Instant, timeout};

use super::error;
use super::source::{Connecting, LONGEST_WAIT, Reply, SharedConnection, Source};
use crate::{Class, Error};

/// The connections of a bb8 pool.
pub(super) struct Given<M: ManageConnection> {
    pool: bb8::Pool<M>,
}

impl<M: ManageConnection> Given<M> {
    pub(super) fn new(pool: bb8::Pool<M>) -> Self {
        Self { pool }
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
                    Ok(Arc::new(GivenConnection { connection }) as Arc<dyn SharedConnection>)
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
struct GivenConnection<C> {
    connection: C,
}

impl<C> SharedConnection for GivenConnection<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send(&self, command: Cmd) -> Reply {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection.req_packed_command(&command).await })
    }

    /// Only the pool can say.
    fn is_alive(&self) -> bool {
        false
    }

    fn record_timeout(&self, _sent: Instant) {}

    fn mark_read_only(&self) {}
}
