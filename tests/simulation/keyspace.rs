//! The keys that a server stores, what they hold, and until when.
//!
//! Expiry is lazy: a key that is old by the server's clock is removed when somebody looks at it.
//! Every change of a key is an entry of the book, which replicas follow.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::book::{Book, Change};
use super::resp::Word;
use super::sorted_set::SortedSet;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    Text(Word),
    SortedSet(SortedSet),
    /// Fields and values, in the order in which they came.
    Hash(Vec<(Word, Word)>),
}

impl Stored {
    /// The type as `TYPE` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::SortedSet(_) => "zset",
            Self::Hash(_) => "hash",
        }
    }

    /// Returns true if nothing is left, so that the key goes.
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::SortedSet(set) => set.is_empty(),
            Self::Hash(fields) => fields.is_empty(),
        }
    }
}

/// A stored value, and when it expires in ms since the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub stored: Arc<Stored>,
    pub expires_at: Option<i64>,
    /// The number of the write, unique in the world. Copies on other servers keep it.
    pub version: u64,
}

impl Entry {
    /// A value that is about to be stored, which gives it its version.
    pub fn new(stored: Stored, expires_at: Option<i64>) -> Self {
        Self { stored: Arc::new(stored), expires_at, version: 0 }
    }
}

thread_local! {
    static LAST_VERSION: Cell<u64> = const { Cell::new(0) };
}

/// Counts the writes of a new world from one on.
pub fn reset_versions() {
    LAST_VERSION.set(0);
}

/// A key holds a value of another type.
#[derive(Debug)]
pub struct WrongType;

/// All keys, and the book of their changes.
#[derive(Debug, Default)]
pub struct Keyspace {
    entries: BTreeMap<Word, Entry>,
    /// The server's clock, in µs since the epoch: one instant for each command.
    pub now: i64,
    /// True if keys that are old are not removed: a replica waits for its primary to do so.
    pub is_replica: bool,
    pub book: Book,
}

impl Keyspace {
    pub fn now_millis(&self) -> i64 {
        self.now.div_euclid(1_000)
    }

    /// The entry of a key, unless it is old.
    pub fn get(&mut self, key: &[u8]) -> Option<&Entry> {
        let now = self.now_millis();
        let is_old = |entry: &Entry| entry.expires_at.is_some_and(|at| at < now);
        if self.entries.get(key).is_some_and(is_old) {
            if !self.is_replica {
                self.put(key, None);
            }
            return None;
        }
        self.entries.get(key)
    }

    /// The entry of a key, old or not.
    pub fn peek(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Replaces the entry of a key by a new version, or removes it, and writes that into the book.
    pub fn put(&mut self, key: &[u8], entry: Option<Entry>) {
        let entry = entry.filter(|entry| !entry.stored.is_empty()).map(|entry| {
            let version = LAST_VERSION.get() + 1;
            LAST_VERSION.set(version);
            Entry { version, ..entry }
        });
        self.copy(key, entry);
    }

    /// The same for an entry of another server, which keeps its version.
    pub fn copy(&mut self, key: &[u8], entry: Option<Entry>) {
        let before = match &entry {
            Some(entry) => self.entries.insert(key.to_vec(), entry.clone()),
            None => self.entries.remove(key),
        };
        if before != entry {
            self.book.record_change(Change {
                at: self.now,
                key: key.to_vec(),
                before,
                after: entry,
            });
        }
    }

    /// Keeps the expiry that the key had.
    pub fn put_value(&mut self, key: &[u8], stored: Stored) {
        let expires_at = self.get(key).and_then(|entry| entry.expires_at);
        self.put(key, Some(Entry::new(stored, expires_at)));
    }

    pub fn text(&mut self, key: &[u8]) -> Result<Option<&Word>, WrongType> {
        match self.get(key).map(|entry| &*entry.stored) {
            None => Ok(None),
            Some(Stored::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WrongType),
        }
    }

    pub fn sorted_set(&mut self, key: &[u8]) -> Result<Option<&SortedSet>, WrongType> {
        match self.get(key).map(|entry| &*entry.stored) {
            None => Ok(None),
            Some(Stored::SortedSet(set)) => Ok(Some(set)),
            Some(_) => Err(WrongType),
        }
    }

    pub fn hash(&mut self, key: &[u8]) -> Result<Option<&Vec<(Word, Word)>>, WrongType> {
        match self.get(key).map(|entry| &*entry.stored) {
            None => Ok(None),
            Some(Stored::Hash(fields)) => Ok(Some(fields)),
            Some(_) => Err(WrongType),
        }
    }

    /// Removes every key.
    pub fn clear(&mut self) {
        for key in self.keys() {
            self.put(&key, None);
        }
    }

    /// The names of all keys, old ones included.
    pub fn keys(&self) -> Vec<Word> {
        self.entries.keys().cloned().collect()
    }

    /// All entries as they are, for a replica that starts anew.
    pub fn copy_entries(&self) -> BTreeMap<Word, Entry> {
        self.entries.clone()
    }

    /// Replaces all entries, as a replica that starts anew does.
    pub fn replace_entries(&mut self, entries: BTreeMap<Word, Entry>) {
        for key in self.keys() {
            if !entries.contains_key(&key) {
                self.put(&key, None);
            }
        }
        for (key, entry) in entries {
            self.copy(&key, Some(entry));
        }
    }
}
