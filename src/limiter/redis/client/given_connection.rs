//! One connection that the application made.
//!
//! The crate only sends over it. Whatever reconnects, if anything does, is the application's.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline};
use tokio::time::Instant;

use super::connection::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use super::pool::Pool;
use crate::{Error, ErrorKind};

impl Pool {
    /// One connection of the application's own: anything that is [`ConnectionLike`], and whose
    /// clones share what it leads to. Such are a `MultiplexedConnection`, a `ConnectionManager` and
    /// mocks, from [`tower_sluice::redis`](crate::redis).
    ///
    /// ```no_run
    /// use tower_sluice::{Pool, Quota, Redis, algorithm::TokenBucket, redis};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let pool = Pool::from_connection(connection.clone());
    /// let api = Redis::new("api", TokenBucket::new(Quota::per_second(50)), pool);
    /// # Ok(()) }
    /// ```
    ///
    /// Every charge is sent once, batches and deadlines are as usual, and so are the kinds of
    /// errors. But the crate only sends over the connection. What [`connect`](Self::connect) does
    /// besides, it cannot do here:
    ///
    /// - A lost connection is not replaced. Over a `MultiplexedConnection` every further decision
    ///   is an error of kind infrastructure; a `ConnectionManager` connects again by itself.
    /// - A connection that is silent, or whose primary was demoted, is used on.
    /// - It belongs to the runtime that made it: when that ends, it is lost.
    /// - A call that its own response timeout ends, half a second by default, is an error of kind
    ///   saturation: that timer says nothing about Redis. Keep it longer than the
    ///   [`decision_timeout`](crate::Redis::decision_timeout).
    /// - [`ready`](Self::ready) asks nothing, and what kind of server is there is not checked.
    ///
    /// The connection must give each reply to the call that it belongs to, also when earlier
    /// callers have left, and must send no command again: a `ClusterConnection` does when a
    /// connection is lost, unless its `retries` are 0. A blocking command, or a transaction over
    /// the same connection, holds up every charge.
    #[must_use]
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Arc::new(GivenConnection(connection)), None)
    }
}

/// A connection whose clones share what it leads to.
struct GivenConnection<C>(C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connections for GivenConnection<C> {
    fn ready_connection(self: Arc<Self>, _hash_slot: u16) -> Option<Arc<dyn SharedConnection>> {
        Some(self)
    }

    fn connection(self: Arc<Self>, _hash_slot: u16) -> ConnectionFuture {
        Box::pin(async move { Ok(self as Arc<dyn SharedConnection>) })
    }

    fn size(&self) -> usize {
        1
    }

    fn connect_error(&self, _: u16, _: Option<Instant>) -> Option<Error> {
        None
    }

    fn no_reply_error(&self, _hash_slot: u16) -> Error {
        Error::new(ErrorKind::Infrastructure, "redis did not answer in time")
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for GivenConnection<C> {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let mut connection = self.0.clone();
        Box::pin(async move { connection.req_packed_command(&command).await })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        let mut connection = self.0.clone();
        Box::pin(async move { connection.req_packed_commands(&commands, 0, commands.len()).await })
    }

    /// There is no other.
    fn is_alive(&self) -> bool {
        true
    }

    fn record_timeout(&self, _sent: Instant, _is_busy: bool) {}

    fn mark_read_only(&self) {}
}
