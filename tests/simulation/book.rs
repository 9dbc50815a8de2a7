//! The book of a server: all that it did, in order. The account that checks read is made of it.

use std::cell::Cell;
use std::collections::HashMap;

use super::keyspace::Entry;
use super::resp::{Reply, Word};
use super::server::Address;

/// A change of one key. A key that has expired is gone, and `before.expires_at` lies before `at`.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The server's clock, in µs since the epoch.
    pub at: i64,
    pub key: Word,
    pub before: Option<Entry>,
    /// `None`: the key is gone.
    pub after: Option<Entry>,
}

/// A call of a script. The changes that it made stand before it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptCall {
    /// The server's clock, in µs since the epoch.
    pub at: i64,
    /// The instant of the world at which a client sent it.
    pub sent_at: i64,
    /// The number of the connection that sent it.
    pub session: u64,
    /// The script's name for EVALSHA.
    pub digest: String,
    pub keys: Vec<Word>,
    pub arguments: Vec<Word>,
    /// The place in the book at which its changes begin.
    pub first_change: usize,
    pub reply: Reply,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Change(Change),
    Call(ScriptCall),
    /// The server ended, with its data or without.
    /// The changes of a loss stand behind it.
    Crash {
        keeps_data: bool,
    },
    /// All keys became those of another server, as the changes behind it say.
    Replaced {
        by: Address,
    },
}

/// An answer of a node of a cluster that names masters: a map, or a redirect.
#[derive(Clone, Debug)]
pub struct Naming {
    pub session: u64,
    /// The instant at which the question came, by the server's clock.
    pub came_at: i64,
    pub is_map: bool,
    pub hosts: Vec<String>,
}

/// Everything that happened, in order. It survives a crash: it is the world's, not the server's.
#[derive(Debug, Default)]
pub struct Book {
    events: Vec<Event>,
    /// The place of each event among those of all servers of the world.
    sequence: Vec<u64>,
    /// The instant of the world at which a client has read the answer to what came over a
    /// connection at an instant of the server's clock.
    read: HashMap<(u64, i64), i64>,
    /// The instant of the world at which that was sent which comes now.
    pub(super) sent_at: i64,
    namings: Vec<Naming>,
    /// True if a client asked for a `PONG` by RESP2: its greeting was cut, as a proxy cuts it.
    pub(super) was_asked_by_resp2: bool,
}

thread_local! {
    static LAST_EVENT: Cell<u64> = const { Cell::new(0) };
}

impl Book {
    /// All events since the server was made.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The place of each event among those of all servers of the world.
    pub fn sequence(&self) -> &[u64] {
        &self.sequence
    }

    /// The number of events so far.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// The instant of the world at which the client had read the answer to what came over a
    /// connection at an instant of the server's clock. `None`: the answer did not arrive whole.
    pub fn read_at(&self, session: u64, came_at: i64) -> Option<i64> {
        self.read.get(&(session, came_at)).copied()
    }

    /// The answers that name masters.
    pub fn namings(&self) -> &[Naming] {
        &self.namings
    }

    pub(super) fn record_naming(&mut self, naming: Naming) {
        self.namings.push(naming);
    }

    pub(super) fn record_reading(&mut self, session: u64, came_at: i64, read_at: i64) {
        self.read.insert((session, came_at), read_at);
    }

    fn record(&mut self, event: Event) {
        LAST_EVENT.set(LAST_EVENT.get() + 1);
        self.sequence.push(LAST_EVENT.get());
        self.events.push(event);
    }

    pub(super) fn record_change(&mut self, change: Change) {
        self.record(Event::Change(change));
    }

    pub(super) fn record_call(&mut self, call: ScriptCall) {
        self.record(Event::Call(call));
    }

    pub(super) fn record_replacement(&mut self, by: Address) {
        self.record(Event::Replaced { by });
    }

    pub(super) fn record_crash(&mut self, keeps_data: bool) {
        self.record(Event::Crash { keeps_data });
    }
}
