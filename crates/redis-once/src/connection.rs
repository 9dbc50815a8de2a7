//! The traits of connections and of their sources, and the connections of the crate's pool.
//!
//! bb8 sends a PING before each use. Here, other signs show that a connection is useless, without a
//! round trip:
//!
//! - The task that reads its socket has ended. After a rest, the pool also asks the system if the
//!   socket is closed.
//! - The server is read-only.
//! - It is silent: bytes were written, none came since, and none wait to be read.
//! - The pool now uses another server in its place.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use redis::{Cmd, ConnectionAddr, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::closings::{Closings, name};
use super::error::Error;
use super::error_reply::is_reply;
use super::fault::Facts;
use super::lock::lock;
use super::on_time::read_arrived;
use super::socket::Socket;
use super::times::{AVOID_SILENT, FORGET_AFTER, MAX_SILENCE};

/// The future of a connection.
pub type ConnectionFuture =
    Pin<Box<dyn Future<Output = Result<Arc<dyn SharedConnection>, Error>> + Send>>;

/// The future of a reply.
pub type ReplyFuture = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// The future of the replies to several commands, in their order.
pub type RepliesFuture = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// A source of connections, such as a pool. In a cluster, the hash slot selects the server.
pub trait Connections: Send + Sync {
    /// Returns a connection that is ready, if there is one.
    fn ready_connection(self: Arc<Self>, hash_slot: u16) -> Option<Arc<dyn SharedConnection>>;
    /// Waits for a connection. The error says why there is none.
    fn connection(self: Arc<Self>, hash_slot: u16) -> ConnectionFuture;
    /// Returns the number of connections that the calls of one partition share, at least 1.
    fn size(&self) -> usize {
        1
    }
    /// Returns the known facts about the server of a hash slot.
    fn facts(&self, _hash_slot: u16) -> Facts {
        Facts::default()
    }
    /// Returns true if the keys of one call may be on several servers; `None` before the first
    /// connection.
    fn keys_apart(&self) -> Option<bool> {
        Some(false)
    }
}

/// One connection, shared by many calls.
///
/// The defaults of the last four methods are for a connection that is never given up.
pub trait SharedConnection: Send + Sync {
    /// Sends one command.
    fn send(&self, command: Cmd) -> ReplyFuture;
    /// Sends commands in one write. An error reply is one of the values; the other values still
    /// count.
    fn send_all(&self, commands: Pipeline) -> RepliesFuture;
    /// The address of the server, if it is known.
    fn address(&self) -> Option<&ConnectionAddr> {
        None
    }
    /// Returns true if the keys of one call may be on several servers behind it.
    fn keys_apart(&self) -> bool {
        false
    }
    /// Returns true if another call may use the connection without asking the pool first.
    fn is_alive(&self) -> bool {
        true
    }
    /// Records that a call has no reply at its deadline, which is now.
    fn record_timeout(&self) {}
    /// Records that the server is read-only.
    fn mark_read_only(&self) {}
    /// Leaves the server, which redirects to its own address. Returns true if a new connection may
    /// lead to another one.
    fn leave_renamed(&self) -> bool {
        false
    }
}

/// A connection of the crate's pool. It closes when its last user drops it.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) health: Arc<ConnectionHealth>,
    pub(super) address: Arc<ConnectionAddr>,
    /// True if the server said that it is a primary.
    pub(super) is_primary: bool,
    /// True if the keys of one call may be on several servers.
    pub(super) keys_apart: bool,
}

impl Connection {
    /// The name of the server in errors.
    pub(super) fn server(&self) -> String {
        format!("redis at {}", self.address)
    }

    /// Returns a call that records its outcome, and ends when the pool leaves the server.
    fn recorded<T: Send>(
        &self,
        command: &'static str,
        call: impl Future<Output = RedisResult<T>> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = RedisResult<T>> + Send>> {
        let (health, address) = (Arc::clone(&self.health), Arc::clone(&self.address));
        let traffic = self.socket.traffic();
        health.is_used.store(true, Relaxed);
        // The client's future has 1.3 kB, and each async function that it passes through would keep
        // a copy.
        let call = Box::pin(call);
        Box::pin(async move {
            let Some(outcome) = health.unless_left(call).await else {
                health.retire(Useless::Closed);
                return Err(was_left(&address));
            };
            if outcome.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
                health.retire(Useless::Closed);
            } else if is_reply(&outcome) {
                health.server.is_silent.store(false, Relaxed);
            }
            let outcome = outcome.map_err(|error| traffic.explain(error));
            health.server.closings.record(command, health.closings, outcome)
        })
    }

    /// Returns why the connection is useless, and since when, as far as this process knows.
    pub(super) fn useless(&self) -> Option<(Useless, Instant)> {
        let ended = || self.socket.has_ended().then(|| (Useless::Closed, Instant::now()));
        self.health.useless().or_else(ended)
    }

    /// Gives the connection up if it is silent. Then its server is silent, too: calls over other
    /// connections have to know it, and calls over this one, which no longer see it.
    pub(super) fn give_up_if_silent(&self) {
        if let Some(too_long) = self.socket.silent_for().checked_sub(MAX_SILENCE) {
            let (server, now) = (&self.health.server, Instant::now());
            self.health.retire_at(Useless::Silent, now.checked_sub(too_long).unwrap_or(now));
            server.await_greeting(self.socket.peer, Instant::now().checked_sub(MAX_SILENCE));
            *lock(&server.silent_since) = Some(Instant::now());
            server.is_silent.store(true, Relaxed);
        }
    }

    /// Returns since when the server is silent, if it is. A reply that waits to be read ends that.
    pub(super) fn server_silent_since(&self) -> Option<Instant> {
        let server = &self.health.server;
        if server.is_silent.load(Relaxed) && self.socket.has_unread() {
            server.is_silent.store(false, Relaxed);
        }
        let is_silent = server.is_silent.load(Relaxed);
        is_silent.then(|| *lock(&server.silent_since)).flatten()
    }
}

impl SharedConnection for Connection {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let mut socket = self.socket.clone();
        self.recorded(name(Some(&command)), async move {
            let reply = socket.connection.send_packed_command(&command).await;
            socket.record_reply();
            reply
        })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        let (mut socket, first) = (self.socket.clone(), name(commands.cmd_iter().next()));
        self.recorded(first, async move {
            let count = commands.len();
            let replies = socket.connection.send_packed_commands(&commands, 0, count).await;
            socket.record_reply();
            replies
        })
    }

    fn address(&self) -> Option<&ConnectionAddr> {
        Some(&self.address)
    }

    fn keys_apart(&self) -> bool {
        self.keys_apart
    }

    fn is_alive(&self) -> bool {
        self.useless().is_none()
    }

    /// Gives a silent connection up. One pause of the server is not a reason to reconnect.
    fn record_timeout(&self) {
        self.give_up_if_silent();
    }

    fn mark_read_only(&self) {
        let server = &self.health.server;
        // A server that ended at the question has closed the connection, too.
        server.closes_at_role.store(false, Relaxed);
        if !self.is_primary {
            *lock(&server.read_only) = self.socket.peer;
        }
        self.health.retire(Useless::ReadOnly);
    }

    fn leave_renamed(&self) -> bool {
        let (mut renamed, now) = (lock(&self.health.server.renamed), Instant::now());
        let recent = renamed.filter(|at| now < *at + FORGET_AFTER);
        *renamed = recent.or(Some(now));
        let again = recent.is_some_and(|at| at <= self.health.begun);
        self.health.retire(if again { Useless::Renamed } else { Useless::Closed });
        self.health.useless().is_some_and(|(reason, _)| reason == Useless::Closed)
    }
}

/// Makes the error of a call to a server that the pool has replaced by another one.
fn was_left(address: &ConnectionAddr) -> RedisError {
    let message = format!("redis at {address} was left: another server has replaced it");
    io::Error::new(io::ErrorKind::ConnectionAborted, message).into()
}

/// The reason why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Useless {
    /// Its socket is closed, or the pool has left its server.
    Closed,
    /// It was not used for long.
    Rested,
    /// Its server is read-only.
    ReadOnly,
    /// Calls over it get no replies.
    Silent,
    /// Its server redirects to its own address, and so did the connection before it.
    Renamed,
}

/// The health of one connection, shared by all its users.
#[derive(Debug)]
pub(super) struct ConnectionHealth {
    /// Why and since when it is useless.
    useless: OnceLock<(Useless, Instant)>,
    server: Arc<ServerHealth>,
    /// True if a call was sent over it.
    is_used: AtomicBool,
    /// The count of [`Closings`] when the connection was begun.
    closings: u32,
    pub(super) begun: Instant,
}

/// The health of all connections to one server.
#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    /// True if a connection was given up as silent, and no call was answered since. A server that
    /// greets, and answers nothing else, is silent.
    pub(super) is_silent: AtomicBool,
    /// The instant at which such a connection was last given up.
    silent_since: Mutex<Option<Instant>>,
    /// True if the address has led to a server that did not say that it is a replica.
    pub(super) has_served: AtomicBool,
    /// True if the server has answered `HELLO`.
    pub(super) knows_hello: AtomicBool,
    /// True if the server has closed a connection when it was asked for its role by RESP2.
    pub(super) closes_at_role: AtomicBool,
    /// The last address that was found to be read-only, and had not said that it is a primary.
    pub(super) read_only: Mutex<Option<SocketAddr>>,
    /// The instant at which the server first redirected to its own address. It counts for
    /// [`FORGET_AFTER`].
    renamed: Mutex<Option<Instant>>,
    /// The addresses behind its name whose greeting a connection awaits, and since when.
    ungreeted: Mutex<Vec<(SocketAddr, Instant)>>,
    /// True if the pool now uses another server in its place.
    is_left: AtomicBool,
    /// Notified when the pool leaves the server.
    left: Notify,
    pub(super) closings: Closings,
    /// The last finding about a server that closed a connection at its begin.
    pub(super) diagnosis: Mutex<Option<Diagnosis>>,
}

/// A finding of probes, with the sentence about a wrong setting; `None`: nobody answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Diagnosis {
    pub(super) at: Instant,
    pub(super) message: Option<&'static str>,
}

impl ConnectionHealth {
    /// Makes the health of a new connection.
    pub(super) fn new(server: &Arc<ServerHealth>) -> Self {
        let (server, closings) = (Arc::clone(server), server.closings.count());
        let is_used = AtomicBool::new(false);
        Self { useless: OnceLock::new(), server, is_used, closings, begun: Instant::now() }
    }

    /// Returns why the connection was given up, and since when. The pool may notice that much
    /// later: then it does not show the current state of the server.
    pub(super) fn useless(&self) -> Option<(Useless, Instant)> {
        let left = || self.server.is_left.load(Relaxed).then(|| (Useless::Closed, Instant::now()));
        self.useless.get().copied().or_else(left)
    }

    /// Returns true if no call was sent over it, and the pool still uses its server.
    pub(super) fn is_unused(&self) -> bool {
        !self.is_used.load(Relaxed) && !self.server.is_left.load(Relaxed)
    }

    /// Records that the connection is useless from now on. The first reason stays.
    pub(super) fn retire(&self, reason: Useless) {
        self.retire_at(reason, Instant::now());
    }

    fn retire_at(&self, reason: Useless, at: Instant) {
        let _ = self.useless.set((reason, at));
    }

    /// Returns the outcome of a call, or `None` after the pool has left the server. Later answers
    /// are useless: they depend on a state that the new server does not have.
    ///
    /// An answer that has arrived by then still counts. A busy process reads it late, but load
    /// alone must not discard a decision that the server made in time.
    pub(super) async fn unless_left<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let left = self.server.left.notified();
        if self.server.is_left.load(Relaxed) {
            return None;
        }
        let leaving = async {
            left.await;
            read_arrived(Instant::now()).await;
        };
        tokio::select! {
            biased;
            outcome = call => Some(outcome),
            () = leaving => None,
        }
    }
}

impl ServerHealth {
    /// Records that a connection awaits the greeting of an address since an instant.
    pub(super) fn await_greeting(&self, peer: Option<SocketAddr>, since: Option<Instant>) {
        lock(&self.ungreeted).extend(peer.zip(since));
    }

    /// Records that an address has greeted a connection.
    pub(super) fn was_greeted(&self, peer: Option<SocketAddr>) {
        lock(&self.ungreeted).retain(|(ungreeted, _)| Some(*ungreeted) != peer);
    }

    /// Returns the addresses that come after the others of a name: a connection awaits their
    /// greeting for long, or has done so a short time ago.
    pub(super) fn silent_addresses(&self) -> Vec<SocketAddr> {
        let mut ungreeted = lock(&self.ungreeted);
        ungreeted.retain(|(_, since)| since.elapsed() < AVOID_SILENT);
        let silent = ungreeted.iter().filter(|(_, since)| since.elapsed() >= MAX_SILENCE);
        silent.map(|(address, _)| *address).collect()
    }

    /// Leaves the server: no call uses a connection to it any more, and running calls end.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Relaxed);
        self.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
