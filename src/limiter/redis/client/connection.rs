//! The traits of connections and of their sources, and the connections of the crate's own pool.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, Pipeline, RedisError, RedisResult, Value};
use tokio::time::Instant;

use super::facts::Facts;
use super::health::{ConnectionState, Health};
use crate::Error;

/// The future of a connection.
pub(crate) type ConnectionFuture =
    Pin<Box<dyn Future<Output = Result<Arc<dyn SharedConnection>, Error>> + Send>>;

/// The future of a reply.
pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// The future of the replies to several commands, in their order.
pub(crate) type RepliesFuture = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// A source of connections, such as a pool. In a cluster, the hash slot selects the server.
pub(crate) trait Connections: Send + Sync {
    /// Returns a connection that is ready, if there is one.
    fn ready_connection(self: Arc<Self>, hash_slot: u16) -> Option<Arc<dyn SharedConnection>>;
    /// Waits for a connection; the error says why there is none.
    fn connection(self: Arc<Self>, hash_slot: u16) -> ConnectionFuture;
    /// The number of connections that the calls of one partition share, at least 1.
    fn size(&self) -> usize;
    /// Returns what is known about the server of a hash slot.
    fn facts(&self, hash_slot: u16) -> Facts;
}

/// One connection, shared by many calls.
pub(crate) trait SharedConnection: Send + Sync {
    /// Sends one command.
    fn send(&self, command: Cmd) -> ReplyFuture;
    /// Sends commands in one write. An error reply is one of the values: the others still count.
    fn send_all(&self, commands: Pipeline) -> RepliesFuture;
    /// The address of the server, if it is known.
    fn address(&self) -> Option<&ConnectionAddr> {
        None
    }
    /// Returns whether another call may use the connection without asking the pool first.
    fn is_alive(&self) -> bool;
    /// Records that a call sent at `sent` has no reply at its deadline, which is now. A process
    /// that is busy may not have read the reply yet.
    fn record_timeout(&self, sent: Instant, is_busy: bool);
    /// Records that the server takes no writes.
    fn mark_read_only(&self);
}

/// A connection of the crate's own pool. It closes when its last user drops it.
pub(super) struct Connection {
    socket: MultiplexedConnection,
    health: Arc<Health>,
    address: Arc<ConnectionAddr>,
    is_primary: bool,
    made_at: Instant,
}

impl Connection {
    pub(super) fn new(
        socket: MultiplexedConnection,
        health: Arc<Health>,
        address: ConnectionAddr,
        is_primary: bool,
    ) -> Self {
        let made_at = Instant::now();
        Self { socket, health, address: Arc::new(address), is_primary, made_at }
    }

    /// Returns the instant at which the connection was made.
    pub(super) fn made_at(&self) -> Instant {
        self.made_at
    }

    /// The name of the server in errors.
    pub(super) fn server(&self) -> String {
        format!("redis at {}", self.address)
    }

    /// Returns whether the server said that it is a primary.
    pub(super) fn is_primary(&self) -> bool {
        self.is_primary
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.health.state()
    }

    /// Returns the instant at which the connection became useless.
    pub(super) fn useless_since(&self) -> Instant {
        self.health.useless_since()
    }
}

impl SharedConnection for Connection {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let (mut socket, health) = (self.socket.clone(), Arc::clone(&self.health));
        let address = Arc::clone(&self.address);
        Box::pin(async move {
            let outcome = health.unless_left(socket.send_packed_command(&command)).await;
            let outcome = outcome.unwrap_or_else(|| Err(was_left(&address)));
            health.record(&outcome);
            outcome
        })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        let (mut socket, health) = (self.socket.clone(), Arc::clone(&self.health));
        let address = Arc::clone(&self.address);
        Box::pin(async move {
            let call = socket.send_packed_commands(&commands, 0, commands.len());
            let outcome = health.unless_left(call).await;
            let outcome = outcome.unwrap_or_else(|| Err(was_left(&address)));
            health.record(&outcome);
            outcome
        })
    }

    fn address(&self) -> Option<&ConnectionAddr> {
        Some(&self.address)
    }

    fn is_alive(&self) -> bool {
        self.health.is_usable()
    }

    fn record_timeout(&self, sent: Instant, is_busy: bool) {
        self.health.record_timeout(sent, is_busy);
    }

    fn mark_read_only(&self) {
        self.health.retire(ConnectionState::ReadOnly);
    }
}

/// The error of a call to a server that the pool has left for another one.
fn was_left(address: &ConnectionAddr) -> RedisError {
    let message = format!("redis at {address} was left: another server is in its place");
    io::Error::new(io::ErrorKind::ConnectionAborted, message).into()
}
