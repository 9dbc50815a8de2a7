//! One connection to a server, shared by many calls.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, Pipeline, RedisError};
use tokio::time::Instant;

use super::connections::{RepliesFuture, ReplyFuture, SharedConnection};
use super::health::{ConnectionState, Health};

/// A connection of the crate's own pool. It is closed when the last of its users drops it.
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

    /// How long it has been ready.
    pub(super) fn age(&self) -> Duration {
        self.made_at.elapsed()
    }

    /// Where it leads, for errors.
    pub(super) fn server(&self) -> String {
        format!("redis at {}", self.address)
    }

    /// Whether the server said that it is a primary.
    pub(super) fn is_primary(&self) -> bool {
        self.is_primary
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.health.state()
    }

    /// When it became useless.
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

/// The error of a call to a server that was left meanwhile.
fn was_left(address: &ConnectionAddr) -> RedisError {
    let message = format!("redis at {address} was left: another server is in its place");
    io::Error::new(io::ErrorKind::ConnectionAborted, message).into()
}
