//! Tells a dead connection from a live one without a round trip.
//!
//! bb8 sends a PING before each use. Here, other signs show that a connection is useless:
//!
//! - The task that reads its socket has ended.
//! - The server takes no writes.
//! - No reply has come for a while, although calls wait for one.
//! - The pool has left the server for another one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::RedisResult;
use tokio::pin;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error;
use super::times::{BUSY_FACTOR, MAX_SILENCE};
use crate::limiter::on_time::read_arrived;

/// The state of a connection: usable, or the reason why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionState {
    Usable,
    /// Its socket is closed, or the pool has left its server.
    Closed,
    /// Its server takes no writes.
    ReadOnly,
    /// Calls over it get no replies.
    Silent,
}

/// The health of one connection, shared by all its users.
#[derive(Debug)]
pub(super) struct Health {
    state: AtomicU8,
    /// The time at which it was retired, in µs since [`ServerHealth::start`]; 0: never.
    retired_at: AtomicU64,
    silence: Silence,
    server: Arc<ServerHealth>,
    generation: u32,
}

/// The health of all connections to one server. When all of them are silent, they are
/// given up together.
#[derive(Debug)]
pub(super) struct ServerHealth {
    /// The instant from which all times here count.
    start: Instant,
    silence: Silence,
    /// True if connections were given up as silent, and nothing was heard since.
    is_silent: AtomicBool,
    /// The current generation. Connections of an earlier one are silent.
    generation: AtomicU32,
    /// The time at which the generation began.
    generation_at: AtomicU64,
    /// True if the pool uses another server in its place.
    is_left: AtomicBool,
    /// Notified when the pool leaves the server.
    left: Notify,
}

impl Default for ServerHealth {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            silence: Silence::default(),
            is_silent: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            generation_at: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
            left: Notify::new(),
        }
    }
}

impl Health {
    /// The health of a new connection.
    pub(super) fn new(server: &Arc<ServerHealth>) -> Self {
        Self {
            state: AtomicU8::new(ConnectionState::Usable as u8),
            retired_at: AtomicU64::new(0),
            silence: Silence::default(),
            server: Arc::clone(server),
            generation: server.generation.load(Relaxed),
        }
    }

    pub(super) fn state(&self) -> ConnectionState {
        match self.state.load(Relaxed) {
            state if state == ConnectionState::Closed as u8 => ConnectionState::Closed,
            state if state == ConnectionState::ReadOnly as u8 => ConnectionState::ReadOnly,
            state if state == ConnectionState::Silent as u8 => ConnectionState::Silent,
            _ if self.server.is_left.load(Relaxed) => ConnectionState::Closed,
            _ if self.generation != self.server.generation.load(Relaxed) => ConnectionState::Silent,
            _ => ConnectionState::Usable,
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.state() == ConnectionState::Usable
    }

    /// Records why the connection is useless from now on. The first reason stays.
    pub(super) fn retire(&self, reason: ConnectionState) {
        let usable = ConnectionState::Usable as u8;
        if self.state.compare_exchange(usable, reason as u8, Relaxed, Relaxed).is_ok() {
            self.retired_at.store(self.server.clock(Instant::now()), Relaxed);
        }
    }

    /// Returns the instant at which the connection became useless. An idle process may notice that
    /// much later: then it says little about the server now.
    pub(super) fn useless_since(&self) -> Instant {
        let retired_at = match self.retired_at.load(Relaxed) {
            0 => self.server.generation_at.load(Relaxed),
            retired_at => retired_at,
        };
        self.server.start + Duration::from_micros(retired_at)
    }

    /// Returns the outcome of a call, or `None` once the pool has left the server. Later answers
    /// are useless: they depend on a state that the server in its place does not have.
    ///
    /// An answer that has arrived by then still counts. A busy process reads it late, and load
    /// alone must not void a decision that the server made in time.
    pub(super) async fn unless_left<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let left = self.server.left.notified();
        if self.server.is_left.load(Relaxed) {
            return None;
        }
        pin!(left, call);
        tokio::select! {
            biased;
            () = left => {}
            outcome = &mut call => return Some(outcome),
        }
        tokio::select! {
            biased;
            outcome = call => Some(outcome),
            () = read_arrived() => None,
        }
    }

    /// Records the outcome of a call.
    pub(super) fn record<T>(&self, outcome: &RedisResult<T>) {
        match outcome {
            Err(error) if error::met_read_only(error) => self.retire(ConnectionState::ReadOnly),
            Err(error) if error.is_unrecoverable_error() => self.retire(ConnectionState::Closed),
            outcome if error::is_reply(outcome) => {
                let now = self.server.clock(Instant::now());
                self.silence.end(now);
                self.server.silence.end(now);
                self.server.is_silent.store(false, Relaxed);
            }
            // The system has lost the route, say: nothing came from the server.
            _ => {}
        }
    }

    /// Records that a call sent at `sent` has no reply at its deadline, which is now.
    ///
    /// The calls of one moment time out together, and one pause of the server is not a reason to
    /// reconnect. So a silence counts only if it is long, and clearly longer than this call has
    /// waited. A process that was too busy to read replies does not know how long there were none.
    /// So if its call begins a silence, that counts from now, and not from the sending.
    pub(super) fn record_timeout(&self, sent: Instant, is_busy: bool) {
        let now = self.server.clock(Instant::now());
        let sent = if is_busy { now } else { self.server.clock(sent) };
        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR } else { 1 };
        let limit = (2 * now.saturating_sub(sent)).max(max_silence.as_micros() as u64);
        if self.silence.begin_or_continue(sent) + limit <= now {
            self.retire(ConnectionState::Silent);
        }
        if self.generation == self.server.generation.load(Relaxed)
            && self.server.silence.begin_or_continue(sent) + limit <= now
        {
            self.server.silence.end(now);
            self.server.is_silent.store(true, Relaxed);
            let next = self.generation.wrapping_add(1);
            self.server.generation_at.store(now, Relaxed);
            self.server.generation.store(next, Relaxed);
        }
    }
}

impl ServerHealth {
    /// Returns whether connections were given up as silent, and nothing was heard since.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Relaxed)
    }

    /// Leaves the server: no call uses a connection to it any more, and calls under way end.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Relaxed);
        self.left.notify_waiters();
    }

    /// Microseconds since the start, at least 1.
    fn clock(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_micros() as u64 + 1
    }
}

/// A time without any reply, although calls were sent.
#[derive(Debug, Default)]
struct Silence {
    /// The time at which the silence began; 0: there is none.
    begun: AtomicU64,
    /// The time at which a silence last ended, mostly with a reply.
    last_end: AtomicU64,
}

impl Silence {
    /// Records that a call sent at `sent` times out. Returns the start of its silence. However long
    /// nothing was sent meanwhile, it goes on: a late reply would have ended it.
    ///
    /// A call that was sent before the last reply says nothing about the time before that reply.
    fn begin_or_continue(&self, sent: u64) -> u64 {
        let sent = sent.max(self.last_end.load(Relaxed));
        let begun = match self.begun.compare_exchange(0, sent, Relaxed, Relaxed) {
            Ok(_) => sent,
            Err(begun) => begun,
        };
        // A reply may have come meanwhile.
        begun.max(self.last_end.load(Relaxed))
    }

    fn end(&self, now: u64) {
        self.last_end.store(now, Relaxed);
        self.begun.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests;
