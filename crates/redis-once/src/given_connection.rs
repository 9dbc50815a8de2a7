//! One connection that the application made.
//!
//! The pool only sends over it. The application must reconnect.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline};

use super::connection::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use super::fault::Facts;
use super::hearing::{Hearing, heard};
use super::pool::Pool;

impl Pool {
    /// Uses one connection of the application: any [`ConnectionLike`] whose clones share one
    /// connection. Examples are a `MultiplexedConnection` or a `ConnectionManager` of
    /// [`redis`](crate::redis), and mocks.
    ///
    /// Commands are sent once, with deadlines and kinds of errors as usual. But the pool only sends
    /// over the connection. It cannot do these things that a pool of [`connect`](Self::connect)
    /// does:
    ///
    /// - It does not replace a lost connection. With a `MultiplexedConnection`, every later command
    ///   is an error of kind infrastructure. A `ConnectionManager` reconnects by itself.
    /// - It keeps using a connection that is silent, or whose primary was demoted.
    /// - The connection belongs to the runtime that made it, and is lost when that ends.
    /// - The connection has its own response timeout, half a second by default. If that ends a
    ///   call, the error is of kind saturation, since that timer does not show the state of Redis.
    /// - The kind of the server is not checked. If several servers share the keys behind the
    ///   connection, as behind a proxy, set [`several_servers`](Self::several_servers).
    ///
    /// The connection must give each reply to its own call, even after earlier callers were
    /// dropped. It must not send a command again, and must use one server: a cluster needs a
    /// `redis-cluster://` address. A blocking command or a transaction over the same connection
    /// delays all others.
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Arc::new(GivenConnection { connection, hearing: Arc::default() }), None)
    }
}

/// The application's connection, whose clones share one connection to the server. It is always
/// alive: there is no other connection.
struct GivenConnection<C> {
    connection: C,
    hearing: Arc<Hearing>,
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connections for GivenConnection<C> {
    fn ready_connection(self: Arc<Self>, _hash_slot: u16) -> Option<Arc<dyn SharedConnection>> {
        Some(self)
    }

    fn connection(self: Arc<Self>, _hash_slot: u16) -> ConnectionFuture {
        Box::pin(async move { Ok(self as Arc<dyn SharedConnection>) })
    }

    fn facts(&self, _hash_slot: u16) -> Facts {
        Facts { failure: None, silent_for: self.hearing.silent_for() }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for GivenConnection<C> {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let mut connection = self.connection.clone();
        heard(&self.hearing, async move { connection.req_packed_command(&command).await })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        let mut connection = self.connection.clone();
        heard(&self.hearing, async move {
            connection.req_packed_commands(&commands, 0, commands.len()).await
        })
    }
}
