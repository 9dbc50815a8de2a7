//! The traits of pools and connections.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, Pipeline, RedisResult, Value};
use tokio::time::Instant;

use crate::Error;

/// How long a call waits for a connection at most.
pub(super) const MAX_CONNECTION_WAIT: Duration = Duration::from_millis(500);

/// The future of a connection.
pub(crate) type ConnectionFuture =
    Pin<Box<dyn Future<Output = Result<Arc<dyn SharedConnection>, Error>> + Send>>;

/// The future of a reply.
pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// The future of the replies to several commands, in their order.
pub(crate) type RepliesFuture = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// A source of connections: a pool. Each hash slot of a cluster is on one of its servers.
pub(super) trait Connections: Send + Sync {
    /// A connection that is ready.
    fn ready_connection(self: Arc<Self>, hash_slot: u16) -> Option<Arc<dyn SharedConnection>>;
    /// Waits for a connection; the error says why there is none.
    fn connection(self: Arc<Self>, hash_slot: u16) -> ConnectionFuture;
    /// The number of connections that the calls of one partition share, at least 1.
    fn size(&self) -> usize;
    /// Why there is no connection, if the last attempt to connect has failed, and not before
    /// `since`: load of this process cannot cause that.
    fn connect_error(&self, hash_slot: u16, since: Option<Instant>) -> Option<Error>;
    /// The error of a call that got neither a connection nor a reply in time.
    fn no_reply_error(&self, hash_slot: u16) -> Error;
}

/// One connection, shared by many calls.
pub(crate) trait SharedConnection: Send + Sync {
    /// Sends one command.
    fn send(&self, command: Cmd) -> ReplyFuture;
    /// Sends commands in one write. A reply that is an error is a value here.
    fn send_all(&self, commands: Pipeline) -> RepliesFuture;
    /// The address of the server, if it is known.
    fn address(&self) -> Option<&ConnectionAddr> {
        None
    }
    /// Whether another call may use it without asking the pool first.
    fn is_alive(&self) -> bool;
    /// Records that a call sent at `sent` has no reply at its deadline, which is now. A process
    /// that is busy may not have read the reply yet.
    fn record_timeout(&self, sent: Instant, is_busy: bool);
    /// Records that the server takes no writes.
    fn mark_read_only(&self);
}
