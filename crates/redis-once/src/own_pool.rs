//! The crate's own pool: a fixed number of connections for each runtime, each shared by many calls.
//! They go to one server, or to the primary that sentinels currently name.
//!
//! A call that needs a connection starts a task on its own runtime, which connects. If that task
//! ends early, by a panic or with its runtime, the next call starts another. Each runtime has its
//! own connections, since a socket is read only while its runtime runs.

use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::{self, Duration, SystemTime};

use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::backoff::{Backoff, with_patience};
use super::connection::{Connection, ConnectionFuture, Connections, SharedConnection, Useless};
use super::error::{Error, ErrorKind};
use super::error_reply::before_asking;
use super::event::{Event, Listener};
use super::fault::{Facts, Failed};
use super::lock::lock;
use super::on_time::unless_busy;
use super::sentinel::Sentinels;
use super::server::{ConnectFailure, Connector, Server};
use super::times::{
    INTERRUPTED_PAUSE, MAX_CONNECTION_WAIT, MAX_REST, MAX_SILENCE, MAX_UNSEEN, MIN_REST,
};

/// The most attempts of one entry at a time.
const MAX_ATTEMPTS: usize = 4;

/// The connections to one target.
pub(super) struct OwnPool {
    target: Target,
    /// The number of connections for each runtime.
    size: usize,
    state: Mutex<PoolState>,
    /// Notified when an attempt to connect ends.
    changed: Notify,
    /// By any connection so far, 2: the keys of one call may be on several servers. 1: they are on
    /// one. 0: there was no connection.
    keys_apart: AtomicU8,
    /// The tasks that connect. They end with the pool.
    attempts: Mutex<JoinSet<()>>,
    /// Told of connections that were made, failed or lost.
    listener: Listener,
    /// True if the last attempt failed, or the last connection was lost.
    has_failed: AtomicBool,
}

/// The target of a pool's connections: one server, or the primary that sentinels name.
#[derive(Clone)]
pub(super) enum Target {
    Server(Box<Server>),
    Primary(Arc<Sentinels>),
}

/// The state of a pool.
#[derive(Default)]
struct PoolState {
    runtimes: Vec<RuntimeConnections>,
    backoff: Backoff,
    unused: UnusedClosings,
    /// The number of changes of the server or the user when this state began.
    switches: u64,
}

/// The connections that were closed before a call was sent over them, since the last other one.
#[derive(Default)]
struct UnusedClosings {
    /// When the first one was seen. It may have been idle for long.
    first: Option<Instant>,
    /// The error of the last one that began after that.
    again: Option<Failed>,
}

/// The connections of one runtime.
struct RuntimeConnections {
    runtime: runtime::Id,
    entries: Vec<PoolEntry>,
    /// The place at which the search for the next connection begins.
    next: usize,
    /// The instant of the last use.
    used: Instant,
    clocks: Clocks,
}

/// The clock of this process, which stands while the machine is suspended, and that of the world.
#[derive(Clone, Copy)]
struct Clocks(time::Instant, SystemTime);

/// A connection, or the attempts to make it.
#[derive(Clone, Default)]
struct PoolEntry {
    connection: Option<Arc<Connection>>,
    /// The starts of the running attempts to connect, the oldest first.
    attempts: Vec<Instant>,
}

/// A lost connection.
struct Lost {
    /// The address of its server.
    address: String,
    reason: &'static str,
    kind: ErrorKind,
    /// The instant at which it became useless.
    since: Instant,
}

impl OwnPool {
    /// Makes a pool of connections to `target`, with these settings. It connects on first use.
    pub(super) fn new(target: Target, connector: &Connector) -> Self {
        let (state, changed, attempts) = (Mutex::default(), Notify::new(), Mutex::default());
        let (size, keys_apart) = (connector.size, AtomicU8::new(0));
        let (listener, has_failed) = (connector.listener.clone(), AtomicBool::new(false));
        Self { target, size, state, changed, keys_apart, attempts, listener, has_failed }
    }

    /// Returns the connection at this place if it is usable, or else the next usable one. The error
    /// is the instant to try again. Starts the due attempts to connect.
    fn next(self: &Arc<Self>, place: Option<usize>) -> Result<Arc<Connection>, Instant> {
        let (now, runtime) = (Instant::now(), Handle::current());
        self.target.keep_watching(&runtime);
        // An attempt that cannot be spawned is dropped at once, and its drop takes the lock.
        let user = Some(runtime.id());
        let (connection, started, patience, retry_at) = self.with_state(now, user, |state| {
            let PoolState { runtimes, backoff, switches, unused } = state;
            let connections = RuntimeConnections::of(runtimes, runtime.id(), self.size);
            if connections.entries.iter().any(PoolEntry::may_attempt) {
                let now_switches = self.target.switches();
                if *switches != now_switches {
                    // Earlier failures do not count for the new server or user.
                    *switches = now_switches;
                    (*backoff, *unused) = <_>::default();
                }
            }
            let (started, retry_at) = connections.begin_attempts(now, backoff);
            (connections.pick(place), started, backoff.patience(), retry_at)
        });
        for entry in started {
            let (pool, id) = (Arc::downgrade(self), runtime.id());
            let attempt = ConnectAttempt { pool, runtime: id, entry, begun: now, result: None };
            let mut attempts = lock(&self.attempts);
            while attempts.try_join_next().is_some() {}
            attempts.spawn_on(attempt.run(self.target.clone(), patience), &runtime);
        }
        connection.ok_or(retry_at)
    }

    /// Drops useless connections, and calls `look` with the state. Then, without the lock, reports
    /// each lost connection and the reason. `user` is a runtime that is about to use a connection.
    fn with_state<T>(
        &self,
        now: Instant,
        user: Option<runtime::Id>,
        look: impl FnOnce(&mut PoolState) -> T,
    ) -> T {
        let mut state = lock(&self.state);
        if let Some(user) = state.runtimes.iter_mut().find(|one| Some(one.runtime) == user) {
            user.end_rest(now);
        }
        let lost = state.clean(now);
        let seen = look(&mut state);
        drop(state);
        for Lost { address, reason, .. } in &lost {
            self.has_failed.store(true, Relaxed);
            self.listener.tell(&Event::Lost { address, reason });
        }
        seen
    }

    /// Records that an attempt to connect gets no answer, although this process waits for it.
    fn record_overdue(&self, runtime: runtime::Id) {
        let mut state = lock(&self.state);
        let own = state.runtimes.iter().find(|one| one.runtime == runtime);
        if own.is_some_and(|own| own.entries.iter().all(|entry| entry.connection.is_none())) {
            let cause = Error::new(ErrorKind::Infrastructure, "redis did not answer in time");
            state.backoff.record_overdue(no_connection(&self.target.address(), cause));
        }
    }

    /// Returns true if the last attempt to connect has failed, and no runtime has a connection.
    pub(super) fn is_away(&self) -> bool {
        let is_away =
            |state: &mut PoolState| state.backoff.last_error.is_some() && !state.is_connected();
        self.with_state(Instant::now(), None, is_away)
    }

    /// Returns the known facts about the target.
    pub(super) fn facts(&self) -> Facts {
        let (connections, mut failure, closed_unused) =
            self.with_state(Instant::now(), None, |state| {
                let own = state.entries().filter_map(|entry| entry.connection.clone());
                let unused = state.unused.again.clone();
                (own.collect::<Vec<_>>(), state.backoff.last_error.clone(), unused)
            });
        failure.take_if(|_| !connections.is_empty());
        if connections.iter().all(|one| one.health.is_unused()) {
            failure = failure.or(closed_unused);
        }
        if let (Some(failed), Some(cause)) = (&mut failure, self.target.unnamed()) {
            failed.error = no_connection(&self.target.address(), cause);
        }
        // Without the lock, since this polls the streams of the application.
        let silent_for = connections.iter().map(|one| one.socket.silent_for()).max();
        let silent_since = connections.iter().fold(None, |_, one| one.server_silent_since());
        if silent_since.is_some() {
            let error = Error::new(ErrorKind::Infrastructure, "redis did not answer in time");
            failure = Some(Failed { error, at: silent_since });
        }
        // Perhaps no call waits for a reply over it, and would give it up.
        connections.iter().for_each(|one| one.give_up_if_silent());
        Facts { failure, silent_for: silent_for.unwrap_or_default() }
    }

    /// Returns a connection that is ready: the one at this place, if that is usable.
    pub(super) fn ready_at(
        self: &Arc<Self>,
        place: Option<usize>,
    ) -> Option<Arc<dyn SharedConnection>> {
        self.next(place).ok().map(|connection| connection as Arc<dyn SharedConnection>)
    }

    /// Waits for a connection, without a limit of time.
    pub(super) fn connection_at(self: Arc<Self>, place: Option<usize>) -> ConnectionFuture {
        Box::pin(async move {
            loop {
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                match self.next(place) {
                    Ok(connection) => return Ok(connection as Arc<dyn SharedConnection>),
                    Err(retry_at) => _ = timeout_at(retry_at, changed).await,
                }
            }
        })
    }
}

impl Connections for OwnPool {
    fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
        self.ready_at(None)
    }

    fn connection(self: Arc<Self>, _: u16) -> ConnectionFuture {
        self.connection_at(None)
    }

    fn size(&self) -> usize {
        self.size
    }

    fn facts(&self, _: u16) -> Facts {
        OwnPool::facts(self)
    }

    fn keys_apart(&self) -> Option<bool> {
        self.keys_apart.load(Relaxed).checked_sub(1).map(|apart| apart == 1)
    }
}

/// An attempt to connect. Its drop records its end in the entry, after any end.
struct ConnectAttempt {
    pool: Weak<OwnPool>,
    runtime: runtime::Id,
    entry: usize,
    begun: Instant,
    /// The outcome; `None` until the attempt has finished.
    result: Option<Result<Connection, ConnectFailure>>,
}

impl ConnectAttempt {
    async fn run(mut self, target: Target, patience: Duration) {
        let (waiting, runtime) = (self.pool.clone(), self.runtime);
        let record_overdue = || {
            if let Some(pool) = waiting.upgrade() {
                pool.record_overdue(runtime);
            }
        };
        self.result = Some(with_patience(target.connect(), patience, record_overdue).await);
    }
}

impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut state = lock(&pool.state);
        let PoolState { runtimes, backoff, .. } = &mut *state;
        let connections = runtimes.iter_mut().find(|one| one.runtime == self.runtime);
        let Some(entry) = connections.map(|one| &mut one.entries[self.entry]) else { return };
        entry.end_attempt(self.begun);
        let panicked = || {
            std::thread::panicking().then(|| {
                let message = "a panic ended the attempt to connect to redis";
                let cause = Error::new(ErrorKind::Configuration, message);
                Err(ConnectFailure { address: pool.target.address(), cause })
            })
        };
        let mut ended = None;
        match self.result.take().or_else(panicked) {
            // Another attempt was faster, so this outcome is outdated.
            Some(_) if entry.connection.is_some() => {}
            Some(Ok(connection)) => {
                pool.keys_apart.fetch_max(1 + u8::from(connection.keys_apart), Relaxed);
                entry.connection = Some(Arc::new(connection));
                backoff.record_end(self.begun, Some(Ok(())));
                ended = Some(Ok(()));
            }
            Some(Err(failure)) => {
                let error = no_connection(&failure.address, failure.cause.clone());
                backoff.record_end(self.begun, Some(Err(error)));
                ended = Some(Err(failure));
            }
            None => backoff.record_end(self.begun, None),
        }
        drop(state);
        pool.changed.notify_waiters();
        match ended {
            Some(Ok(())) => {
                let again = pool.has_failed.swap(false, Relaxed);
                pool.listener.tell(&Event::Connected { address: &pool.target.address(), again });
            }
            Some(Err(ConnectFailure { cause, .. })) if cause.kind() == ErrorKind::Saturation => {}
            Some(Err(ConnectFailure { address, cause })) => {
                pool.has_failed.store(true, Relaxed);
                pool.listener.tell(&Event::Failed { address: &address, error: &cause });
            }
            None => {}
        }
    }
}

impl PoolState {
    /// The entries of the current runtime.
    fn entries(&self) -> impl Iterator<Item = &PoolEntry> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let current = self.runtimes.iter().filter(move |one| Some(one.runtime) == runtime);
        current.flat_map(|connections| &connections.entries)
    }

    /// Returns true if any runtime has a connection.
    fn is_connected(&self) -> bool {
        let mut entries = self.runtimes.iter().flat_map(|runtime| &runtime.entries);
        entries.any(|entry| entry.connection.is_some())
    }

    /// Drops useless connections, and runtimes without connections or attempts. Returns the lost
    /// connections.
    #[must_use]
    fn clean(&mut self, now: Instant) -> Vec<Lost> {
        let (mut all, mut unusable) = (Vec::new(), None);
        for entry in self.runtimes.iter_mut().flat_map(|runtime| &mut runtime.entries) {
            let Some(connection) = &entry.connection else { continue };
            let Some((reason, since)) = connection.useless() else { continue };
            let since = since.min(now);
            let kind = match reason {
                // No outage: the servers of a cluster share an address.
                Useless::Renamed => ErrorKind::Configuration,
                _ => ErrorKind::Infrastructure,
            };
            let (why, is_usable) = match reason {
                Useless::Closed => ("it was closed", true),
                Useless::Rested => ("it was not used for long", true),
                Useless::ReadOnly => ("redis is read-only", false),
                Useless::Silent => ("redis stopped answering", false),
                Useless::Renamed => ("redis redirects to its own address", false),
            };
            if reason == Useless::Closed && self.unused.record(connection, now, since) {
                self.backoff.hold_until(now + INTERRUPTED_PAUSE);
            }
            if !is_usable {
                unusable = Some(all.len());
            }
            all.push(Lost { address: connection.server(), reason: why, kind, since });
            entry.connection = None;
        }
        self.runtimes.retain(|runtime| !runtime.entries.iter().all(PoolEntry::is_empty));
        if let Some(Lost { address, reason, kind, since }) = unusable.map(|place| &all[place]) {
            // A pause comes first, since connecting at once may reach the same server.
            let cause = Error::new(*kind, *reason);
            self.backoff.record_unusable(*since, no_connection(address, cause));
        }
        all
    }
}

/// Makes the error of a failed attempt to connect to `address`. The decision was not requested yet.
fn no_connection(address: &str, cause: Error) -> Error {
    before_asking(format!("no connection to {address}"), cause)
}

impl RuntimeConnections {
    /// Returns the connections of `runtime`, and adds them if they are missing.
    fn of(runtimes: &mut Vec<Self>, runtime: runtime::Id, size: usize) -> &mut Self {
        let known = runtimes.iter().position(|connections| connections.runtime == runtime);
        let at = known.unwrap_or_else(|| {
            let (entries, used) = (vec![PoolEntry::default(); size], Instant::now());
            runtimes.push(Self { runtime, entries, next: 0, used, clocks: Clocks::now() });
            runtimes.len() - 1
        });
        &mut runtimes[at]
    }

    /// Looks for connections that died, if nothing was sent for a moment: the thread may have stood
    /// still, or the process, so that the runtime has had no turn to notice. After a long rest, all
    /// are given up: a network may have forgotten them without a sign.
    fn end_rest(&mut self, now: Instant) {
        let rest = now.saturating_duration_since(mem::replace(&mut self.used, now));
        if rest < MIN_REST {
            return;
        }
        // Asked in any case, so that the same time does not count twice.
        let unseen = self.clocks.unseen(Clocks::now());
        let is_long = rest >= MAX_REST || unseen >= MAX_UNSEEN;
        for connection in self.entries.iter().filter_map(|entry| entry.connection.as_ref()) {
            if is_long {
                connection.health.retire(Useless::Rested);
            } else if connection.socket.is_closed() {
                connection.health.retire(Useless::Closed);
            }
        }
    }

    /// Begins the due attempts to connect. Returns their entries, and the instant to try again.
    fn begin_attempts(&mut self, now: Instant, backoff: &mut Backoff) -> (Vec<usize>, Instant) {
        let mut started = Vec::new();
        let mut retry_at = now + MAX_CONNECTION_WAIT;
        let has_none = self.entries.iter().all(|entry| entry.connection.is_none());
        for (number, entry) in
            self.entries.iter_mut().enumerate().filter(|(_, entry)| entry.may_attempt())
        {
            let pause = match has_none {
                true => backoff.retry_at_without_connection(now),
                false => backoff.retry_at(now),
            };
            if let Some(later) = entry.retry_at(now).max(pause) {
                retry_at = retry_at.min(later);
                continue;
            }
            backoff.record_attempt(now);
            entry.attempts.push(now);
            // Another attempt may begin beside it then.
            retry_at = retry_at.min(now + MAX_SILENCE);
            started.push(number);
        }
        (started, retry_at)
    }

    /// Returns the connection at a place, if there is one. Otherwise all connections take turns.
    fn pick(&mut self, place: Option<usize>) -> Option<Arc<Connection>> {
        if let Some(connection) = place.and_then(|place| self.entries[place].connection.as_ref()) {
            return Some(Arc::clone(connection));
        }
        let (before, after) = self.entries.split_at(self.next);
        let at = after.iter().chain(before).position(|entry| entry.connection.is_some())?;
        let at = (self.next + at) % self.entries.len();
        self.next = (at + 1) % self.entries.len();
        self.entries[at].connection.clone()
    }
}

impl UnusedClosings {
    /// Records that the server has closed a connection. Returns true from the third one in a row
    /// on: a short pause comes before the next.
    fn record(&mut self, connection: &Connection, now: Instant, since: Instant) -> bool {
        if !connection.health.is_unused() {
            *self = Self::default();
            return false;
        }
        if *self.first.get_or_insert(now) > connection.health.begun {
            return false;
        }
        let why = "it closes connections before a call is sent";
        let cause = Error::new(ErrorKind::Infrastructure, why);
        let error = no_connection(&connection.server(), cause);
        self.again.replace(Failed { error, at: Some(since) }).is_some()
    }
}

impl Clocks {
    fn now() -> Self {
        Self(time::Instant::now(), SystemTime::now())
    }

    /// Returns the time since the last call that passed for the world alone.
    fn unseen(&mut self, now: Self) -> Duration {
        let Self(before, world_before) = mem::replace(self, now);
        let of_world = now.1.duration_since(world_before).unwrap_or_default();
        of_world.saturating_sub(now.0.saturating_duration_since(before))
    }
}

impl PoolEntry {
    fn is_empty(&self) -> bool {
        self.connection.is_none() && self.attempts.is_empty()
    }

    /// Returns true if another attempt may be due.
    fn may_attempt(&self) -> bool {
        self.connection.is_none() && self.attempts.len() < MAX_ATTEMPTS
    }

    /// Returns the instant at which the next attempt may begin, if it may not begin now.
    fn retry_at(&self, now: Instant) -> Option<Instant> {
        self.attempts.last().map(|begun| *begun + MAX_SILENCE).filter(|next| *next > now)
    }

    /// Records the end of the attempt that began at `begun`.
    fn end_attempt(&mut self, begun: Instant) {
        self.attempts.retain(|one| *one != begun);
    }
}

impl From<Server> for Target {
    fn from(server: Server) -> Self {
        Self::Server(Box::new(server))
    }
}

impl Target {
    /// Connects. If this process was too busy, the error does not blame the server.
    pub(super) async fn connect(&self) -> Result<Connection, ConnectFailure> {
        match self {
            Self::Server(server) => {
                let end = Instant::now() + server.connector.timeout;
                let connected = unless_busy(end, server.connect()).await;
                connected.map_err(|cause| ConnectFailure { address: server.address(), cause })
            }
            Self::Primary(sentinels) => sentinels.connect().await,
        }
    }

    /// The name of the target in errors.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Server(server) => server.address(),
            Self::Primary(sentinels) => sentinels.address(),
        }
    }

    /// Returns why no primary is known, if sentinels name none.
    fn unnamed(&self) -> Option<Error> {
        match self {
            Self::Server(_) => None,
            Self::Primary(sentinels) => sentinels.unnamed(),
        }
    }

    /// Watches sentinels for a new primary, by a task on `runtime`.
    pub(super) fn keep_watching(&self, runtime: &Handle) {
        if let Self::Primary(sentinels) = self {
            sentinels.keep_watching(runtime);
        }
    }

    /// Returns the number of changes of the server, or of the user.
    pub(super) fn switches(&self) -> u64 {
        match self {
            Self::Server(server) => server.connector.login.changes(),
            Self::Primary(sentinels) => sentinels.switches(),
        }
    }
}

#[cfg(test)]
mod tests;
