//! One connection that the application made.
//!
//! The crate only sends over it. Whatever reconnects, if anything does, is the application's.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline};
use tokio::time::Instant;

use super::connections::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use crate::{Error, ErrorKind};

/// A connection whose clones share what it leads to.
pub(super) struct GivenConnection<C>(C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> GivenConnection<C> {
    pub(super) fn new(connection: C) -> Self {
        Self(connection)
    }
}

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

    fn connect_error(&self, _hash_slot: u16) -> Option<Error> {
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
