//! The crate's own pool: a fixed number of connections, each shared by many calls.
//!
//! Connections are made when a call asks for one, by a task of that call's runtime. When that task ends early, since
//! its runtime ended or since it panicked, the next call starts another.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::backoff::Backoff;
use super::connection::Connection;
use super::health::State;
use super::server::Server;
use super::source::{Connecting, LONGEST_WAIT, SharedConnection, Source};
use crate::{Class, Error};

/// The pause after an attempt that ended with its runtime.
const INTERRUPTED: Duration = Duration::from_millis(10);

/// How much longer than its timeout an attempt may take. An attempt that takes longer is in a runtime that is not
/// driven, and another runtime tries.
const MARGIN: Duration = Duration::from_millis(50);

/// Connections to one server.
pub(super) struct Connections {
    server: Server,
    size: usize,
    state: Mutex<Slots>,
    /// Notified when an attempt to connect ends.
    changed: Notify,
}

struct Slots {
    slots: Vec<Slot>,
    /// Where the search for the next connection begins.
    next: usize,
    backoff: Backoff,
    /// Why the last attempt to connect failed. None after a success.
    failure: Option<Error>,
}

#[derive(Clone, Default)]
struct Slot {
    connection: Option<Arc<Connection>>,
    /// The begin of the attempt to connect that is under way.
    attempt: Option<Instant>,
}

impl Connections {
    /// `size` connections to `server`, made when they are first needed.
    pub(super) fn new(server: Server, size: usize) -> Self {
        let slots = Slots {
            slots: vec![Slot::default(); size],
            next: 0,
            backoff: Backoff::default(),
            failure: None,
        };
        Self { server, size, state: Mutex::new(slots), changed: Notify::new() }
    }

    /// The next usable connection, or when to look again. Starts the attempts to connect that are due.
    fn next(self: &Arc<Self>) -> Result<Arc<Connection>, Instant> {
        let now = Instant::now();
        let longest = self.server.connect_timeout + MARGIN;
        let mut state = self.lock();
        state.clean(now);
        let (begun, look_again) = state.begin_attempts(now, longest);
        let connection = state.pick();
        // An attempt that cannot be spawned ends at once, and takes the lock.
        drop(state);
        for slot in begun {
            let attempt = Attempt { pool: Arc::downgrade(self), slot, begun: now, result: None };
            tokio::spawn(attempt.run(self.server.clone()));
        }
        connection.ok_or(look_again)
    }

    fn no_connection(&self) -> Error {
        let address = self.server.address();
        match self.lock().failure.clone() {
            Some(cause) => {
                let message = format!("no connection to {address}");
                Error::new(cause.class(), message).because(cause)
            }
            None => {
                let message = format!("no connection to {address} in time");
                Error::new(Class::Infrastructure, message)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Drops the connections that are of no more use.
    fn clean(&mut self, now: Instant) {
        let mut useless = None;
        for slot in &mut self.slots {
            match slot.connection.as_ref().map(|connection| connection.state()) {
                None | Some(State::Usable) => continue,
                Some(State::Closed) => {}
                Some(State::ReadOnly) => useless = Some("redis is read-only"),
                Some(State::Silent) => useless = Some("redis stopped answering"),
            }
            slot.connection = None;
        }
        if let Some(reason) = useless {
            // Connecting at once may well succeed, and lead to the same server.
            self.backoff.fail(now);
            self.failure = Some(Error::new(Class::Infrastructure, reason));
        }
    }

    /// Begins the attempts to connect that are due: returns their slots, and when to look again.
    fn begin_attempts(&mut self, now: Instant, longest: Duration) -> (Vec<usize>, Instant) {
        let mut begun = Vec::new();
        let mut look_again = now + longest;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.connection.is_some() {
                continue;
            }
            let under_way = slot.attempt.map(|begun| begun + longest).filter(|end| *end > now);
            if let Some(later) = under_way.or_else(|| self.backoff.wait(now)) {
                look_again = look_again.min(later);
                continue;
            }
            self.backoff.begin(now);
            slot.attempt = Some(now);
            begun.push(number);
        }
        (begun, look_again)
    }

    /// The usable connections take turns.
    fn pick(&mut self) -> Option<Arc<Connection>> {
        let (before, after) = self.slots.split_at(self.next);
        let at = after.iter().chain(before).position(|slot| slot.connection.is_some())?;
        let at = (self.next + at) % self.slots.len();
        self.next = (at + 1) % self.slots.len();
        self.slots[at].connection.clone()
    }
}

impl Source for Connections {
    fn connection(self: Arc<Self>) -> Connecting {
        Box::pin(async move {
            let end = Instant::now() + LONGEST_WAIT;
            loop {
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                let look_again = match self.next() {
                    Ok(connection) => return Ok(connection as Arc<dyn SharedConnection>),
                    Err(look_again) => look_again.min(end),
                };
                if timeout_at(look_again, changed).await.is_err() && Instant::now() >= end {
                    return Err(self.no_connection());
                }
            }
        })
    }

    fn size(&self) -> usize {
        self.size
    }

    fn no_reply(&self) -> Error {
        let mut state = self.lock();
        state.clean(Instant::now());
        let is_connected = state.slots.iter().any(|slot| slot.connection.is_some());
        drop(state);
        match is_connected {
            true => Error::new(Class::Infrastructure, "redis did not answer in time"),
            false => self.no_connection(),
        }
    }
}

/// An attempt to connect. Whatever ends it, its slot is free afterwards.
struct Attempt {
    pool: Weak<Connections>,
    slot: usize,
    begun: Instant,
    /// None if the attempt is not finished.
    result: Option<Result<Connection, Error>>,
}

impl Attempt {
    async fn run(mut self, server: Server) {
        self.result = Some(server.connect().await);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let (mut state, now) = (pool.lock(), Instant::now());
        let Slots { slots, backoff, failure, .. } = &mut *state;
        let slot = &mut slots[self.slot];
        if slot.attempt == Some(self.begun) {
            slot.attempt = None;
        }
        match self.result.take() {
            Some(Ok(connection)) => {
                slot.connection.get_or_insert(Arc::new(connection));
                *failure = None;
            }
            Some(Err(error)) => {
                backoff.fail(now);
                *failure = Some(error);
            }
            None if std::thread::panicking() => {
                backoff.fail(now);
                let message = "a panic ended the attempt to connect to redis";
                *failure = Some(Error::new(Class::Configuration, message));
            }
            // Its runtime ended.
            None => backoff.hold(now + INTERRUPTED),
        }
        drop(state);
        pool.changed.notify_waiters();
    }
}
