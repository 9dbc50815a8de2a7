//! Tells a dead connection from a live one without a round trip.
//!
//! bb8 sends a PING before each use. Here three signs without a round trip show that a
//! connection is useless: the task that reads its socket has ended, the server takes no
//! writes, or no reply has come for a while although calls wait for one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::RedisResult;
use tokio::pin;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error;
use crate::limiter::grace_period::read_arrived;

/// How long a connection may be silent. It is longer than the pauses of a healthy server, such as a
/// fork or a slow command, and short enough to leave an address that swallows everything.
pub(crate) const MAX_SILENCE: Duration = Duration::from_millis(300);

/// A connection may be silent this many times longer in a process that is too busy to read
/// replies at once.
pub(crate) const BUSY_FACTOR: u32 = 10;

/// A timeout this long after the last one begins a new silence: the reply to the last call came
/// after its callers had left.
const NEW_SILENCE_AFTER: Duration = Duration::from_secs(2);

/// Whether a connection can be used, or why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionState {
    Usable,
    /// Its socket is closed, or its server was left.
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
    /// When it became useless, by the server's clock.
    retired_at: AtomicU64,
    silence: Silence,
    server: Arc<ServerHealth>,
    generation: u32,
}

/// The health of all connections to one server. When all of them are silent, they are
/// given up together.
#[derive(Debug)]
pub(super) struct ServerHealth {
    /// Silences are measured from here.
    start: Instant,
    silence: Silence,
    /// Connections of an earlier generation are silent.
    generation: AtomicU32,
    /// When the generation began.
    generation_at: AtomicU64,
    /// Whether another server is used in its place.
    is_left: AtomicBool,
    /// Notified when it is left.
    left: Notify,
}

impl Default for ServerHealth {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            silence: Silence::default(),
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

    /// When the connection became useless. It may be noticed much later: an idle process has no use
    /// for it. So what it says about the server is as old.
    pub(super) fn useless_since(&self) -> Instant {
        let retired_at = match self.retired_at.load(Relaxed) {
            0 => self.server.generation_at.load(Relaxed),
            retired_at => retired_at,
        };
        self.server.start + Duration::from_micros(retired_at)
    }

    /// The outcome of a call, or `None` once the server is left. Whatever the server still answers
    /// is of no use then: it decides on a state that the server in its place does not have.
    ///
    /// What has arrived by then counts: a busy process reads it late, and load alone must not end
    /// what the server has decided in time.
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

    /// Records how a call ended.
    pub(super) fn record<T>(&self, outcome: &RedisResult<T>) {
        match outcome {
            Err(error) if error::met_read_only(error) => self.retire(ConnectionState::ReadOnly),
            Err(error) if error.is_unrecoverable_error() => self.retire(ConnectionState::Closed),
            _ => {
                let now = self.server.clock(Instant::now());
                self.silence.end(now);
                self.server.silence.end(now);
            }
        }
    }

    /// Records that a call sent at `sent` has no reply at its deadline, which is now.
    ///
    /// The calls of one moment time out together, and one pause of the server is no reason
    /// to reconnect. So a silence counts only if it is long, and clearly longer than this
    /// call has waited. A process that stood still for long has not listened, so that its call says
    /// little about that time.
    pub(super) fn record_timeout(&self, sent: Instant, is_busy: bool) {
        let now = self.server.clock(Instant::now());
        let listened = if is_busy { MAX_SILENCE.as_micros() as u64 } else { u64::MAX };
        let sent = self.server.clock(sent).max(now.saturating_sub(listened));
        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR } else { 1 };
        let limit = (2 * now.saturating_sub(sent)).max(max_silence.as_micros() as u64);
        if self.silence.begin_or_continue(sent, now) + limit <= now {
            self.retire(ConnectionState::Silent);
        }
        if self.generation == self.server.generation.load(Relaxed)
            && self.server.silence.begin_or_continue(sent, now) + limit <= now
        {
            self.server.silence.end(now);
            let next = self.generation.wrapping_add(1);
            self.server.generation_at.store(now, Relaxed);
            self.server.generation.store(next, Relaxed);
        }
    }
}

impl ServerHealth {
    /// Leaves the server: no connection to it is used any more, and calls on their way end.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Relaxed);
        self.left.notify_waiters();
    }

    /// Microseconds since the start, at least 1.
    fn clock(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_micros() as u64 + 1
    }
}

/// A time without any reply, though calls were sent.
#[derive(Debug, Default)]
struct Silence {
    /// When it began; 0 if there is none.
    begun: AtomicU64,
    /// When a call last timed out.
    last_timeout: AtomicU64,
    /// When it last ended, mostly with a reply.
    last_end: AtomicU64,
}

impl Silence {
    /// Records that a call sent at `sent` times out now. Returns when its silence began.
    ///
    /// A call that was sent before the last reply says nothing about the time before that reply.
    fn begin_or_continue(&self, sent: u64, now: u64) -> u64 {
        let sent = sent.max(self.last_end.load(Relaxed));
        let last = self.last_timeout.swap(now, Relaxed);
        if last + (NEW_SILENCE_AFTER.as_micros() as u64) < sent {
            self.begun.store(sent, Relaxed);
        }
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
