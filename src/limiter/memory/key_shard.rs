//! A shard: some of the keys, under one lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU8;

use hashbrown::HashTable;

use crate::core::{Error, ErrorKind};

/// The most keys that one decision examines to find one to evict, so that no decision holds
/// the lock for long.
const MAX_EXAMINED: usize = 256;

/// The number of keys that a decision examines which brings a new key, and every decision once the
/// memory fills up. So a decision that needs room almost always finds an old key at once, and most
/// decisions read no other key than their own.
const EXAMINED_PER_DECISION: usize = 2;

/// Returns the instant at which a key that ends at `end` is examined: before its end, since its
/// units may be given back and a block may be ended, but not so early that a search finds live keys
/// only. At least 10 s are between two looks.
fn examined_at(now: i64, end: i64) -> i64 {
    end.min(now + ((end - now) / 8).max(10_000_000))
}

pub(super) struct Shard<S> {
    capacity: usize,
    /// True if the clock never steps back, so that an expired key may go before room is needed.
    may_evict: bool,
    hasher: RandomState,
    entries: HashTable<KeyEntry<S>>,
    /// The hash of every key once, ordered by the instant at which it is examined.
    ages: BinaryHeap<Reverse<(i64, u64)>>,
}

struct KeyEntry<S> {
    name: EntryName,
    kept: KeyState<S>,
    /// The instant at which the state is equivalent to no state. After a reset, a later one.
    expires_at: i64,
}

impl<S> KeyEntry<S> {
    /// The instant at which the state is equivalent to no state, and no block or pause lasts any
    /// more.
    fn end(&self) -> i64 {
        let lasts_until = |over: &Over| over.blocked_until.max(over.paused_until);
        self.expires_at.max(self.kept.over.as_deref().map_or(0, lasts_until))
    }

    fn hash(&self, hasher: &RandomState) -> u64 {
        hash(hasher, self.name.as_bytes())
    }
}

/// The state of a key, and what few keys have.
pub(super) struct KeyState<S> {
    /// `None` after a reset.
    pub(super) state: Option<S>,
    /// `None` if the key was never blocked, paused or reset. So it takes no room in most keys.
    over: Option<Box<Over>>,
}

#[derive(Default)]
struct Over {
    /// The end of the block, which refuses checks in every state. 0 if there was no block.
    blocked_until: i64,
    /// The end of the pause, before which no check fits. 0 if there was no pause.
    paused_until: i64,
    /// The number of the last reset, different from each before. 0 if there was no reset.
    birth: i64,
}

/// The time, in µs, for which a reset is remembered after the last change of its key, at least. So
/// requests that were under way settle nothing. The scripts have the same time.
const MEMORY_OF_A_RESET: i64 = 600_000_000;

impl<S> KeyState<S> {
    #[inline]
    pub(super) fn block_end(&self, now: i64) -> Option<i64> {
        self.over.as_ref().map(|over| over.blocked_until).filter(|until| *until > now)
    }

    /// Blocks the key until the later end of two blocks.
    pub(super) fn block(&mut self, until: i64) {
        let over = self.over.get_or_insert_default();
        over.blocked_until = over.blocked_until.max(until);
    }

    #[inline]
    pub(super) fn pause_end(&self, now: i64) -> Option<i64> {
        self.over.as_ref().map(|over| over.paused_until).filter(|until| *until > now)
    }

    /// Pauses the key until the later end of two pauses.
    pub(super) fn pause(&mut self, until: i64) {
        let over = self.over.get_or_insert_default();
        over.paused_until = over.paused_until.max(until);
    }

    pub(super) fn unblock(&mut self) {
        if let Some(over) = &mut self.over {
            (over.blocked_until, over.paused_until) = (0, 0);
        }
    }

    /// The number of the last reset. A charge settles only in the life that it was taken in.
    #[inline]
    pub(super) fn birth(&self) -> i64 {
        self.over.as_ref().map_or(0, |over| over.birth)
    }

    /// True if the key was reset since it had these births. A key without a birth contradicts none.
    pub(super) fn contradicts(&self, births: Option<&[i64]>) -> bool {
        let birth = births.map(|births| births.first().copied().unwrap_or(0));
        self.birth() > 0 && birth.is_some_and(|birth| birth != self.birth())
    }

    pub(super) fn reset(&mut self, now: i64) {
        self.state = None;
        let over = self.over.get_or_insert_default();
        over.birth = now.max(over.birth + 1);
    }
}

/// Returns the hash of a name. The hasher has a random key, so that callers cannot choose names
/// that collide.
#[inline]
pub(super) fn hash(hasher: &RandomState, name: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(name);
    hasher.finish()
}

impl<S> Shard<S> {
    pub(super) fn new(capacity: usize, may_evict: bool, hasher: RandomState) -> Self {
        let (entries, ages) = (HashTable::new(), BinaryHeap::new());
        Self { capacity, may_evict, hasher, entries, ages }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Applies `change` to the key with this name and the [`hash`] of it. If `change` changes the
    /// state, it returns when the state expires. Returns the output of `change`.
    #[inline]
    pub(super) fn update<T>(
        &mut self,
        (hash_of_name, name): (u64, &[u8]),
        now: i64,
        change: impl FnOnce(&mut KeyState<S>) -> (T, Option<i64>),
    ) -> Result<T, Error> {
        let mut entry = self.entries.find_mut(hash_of_name, |entry| entry.name.as_bytes() == name);
        let mut kept = KeyState { state: None, over: None };
        // A single call for old and new keys, so that the compiler puts it in place.
        let (answer, expires_at) = change(entry.as_mut().map_or(&mut kept, |old| &mut old.kept));
        let Some(expires_at) = expires_at else { return Ok(answer) };
        if let Some(entry) = entry {
            entry.expires_at = match entry.kept.birth() {
                0 => expires_at,
                _ => expires_at.max(entry.expires_at).max(now + MEMORY_OF_A_RESET),
            };
            return Ok(answer);
        }
        let is_reset = kept.state.is_none() && kept.birth() > 0;
        let expires_at = if is_reset { now + MEMORY_OF_A_RESET } else { expires_at };
        // Nothing was to be forgotten. So resets of unknown keys leave room for charges.
        if is_reset && self.entries.len() * 2 >= self.capacity {
            return Ok(answer);
        }
        if !self.fills_up() {
            self.examine(now);
        }
        if self.entries.len() >= self.capacity && !self.make_room(now) {
            return Err(Error::new(ErrorKind::Capacity, "the memory is full of live keys"));
        }
        let entry = KeyEntry { name: name.into(), kept, expires_at };
        self.ages.push(Reverse((examined_at(now, expires_at), hash_of_name)));
        let hasher = &self.hasher;
        self.entries.insert_unique(hash_of_name, entry, |entry| entry.hash(hasher));
        Ok(answer)
    }

    /// Returns true if a key with this name has a place, or can have one. Evicts an expired key to
    /// make room.
    pub(super) fn has_room_for(&mut self, (hash_of_name, name): (u64, &[u8]), now: i64) -> bool {
        self.entries.find(hash_of_name, |entry| entry.name.as_bytes() == name).is_some()
            || self.entries.len() < self.capacity
            || self.make_room(now)
    }

    /// Examines a few keys if the memory fills up.
    #[inline]
    pub(super) fn maintain(&mut self, now: i64) {
        if self.fills_up() {
            self.examine(now);
        }
    }

    /// Returns true if at most a quarter of the memory is free.
    #[inline]
    fn fills_up(&self) -> bool {
        self.entries.len() >= self.capacity - self.capacity / 4
    }

    /// Examines a few keys that may have expired, and evicts those that have.
    fn examine(&mut self, now: i64) {
        for _ in 0..EXAMINED_PER_DECISION {
            let is_old = self.ages.peek().is_some_and(|Reverse((age, _))| *age <= now);
            if is_old && self.find_expired(now, 1) && self.may_evict {
                self.evict_oldest();
            }
        }
    }

    fn make_room(&mut self, now: i64) -> bool {
        let is_found = self.find_expired(now, MAX_EXAMINED);
        if is_found {
            self.evict_oldest();
        }
        is_found
    }

    /// Examines up to `most` keys that may have expired. Returns true if the first key of `ages`
    /// has.
    fn find_expired(&mut self, now: i64, most: usize) -> bool {
        for _ in 0..most {
            let oldest = self.ages.peek_mut().filter(|oldest| oldest.0.0 <= now);
            let Some(mut oldest) = oldest else { return false };
            let hash = oldest.0.1;
            let entry = self.entries.find(hash, |entry| entry.hash(&self.hasher) == hash);
            let end = entry.map(KeyEntry::end).filter(|end| *end > now);
            let Some(end) = end else { return true };
            oldest.0.0 = examined_at(now, end);
        }
        false
    }

    /// Evicts the first key of `ages`. If two keys have the same hash, the same key is
    /// found.
    fn evict_oldest(&mut self) {
        let Some(Reverse((_, hash))) = self.ages.pop() else { return };
        let entry = self.entries.find_entry(hash, |entry| entry.hash(&self.hasher) == hash);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }
}

/// The longest name that is stored in place: IPv4 addresses and most user ids fit.
const MAX_IN_PLACE: usize = 23;

/// The name of a key. A short name is part of the entry, so that a decision reads it together with
/// the entry.
pub(super) enum EntryName {
    InPlace { length: NonZeroU8, bytes: [u8; MAX_IN_PLACE] },
    Boxed(Box<[u8]>),
}

impl EntryName {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            EntryName::InPlace { length, bytes } => &bytes[..usize::from(length.get())],
            EntryName::Boxed(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for EntryName {
    fn from(name: &[u8]) -> Self {
        let length = u8::try_from(name.len()).ok().and_then(NonZeroU8::new);
        match length {
            Some(length) if name.len() <= MAX_IN_PLACE => {
                let mut bytes = [0; MAX_IN_PLACE];
                bytes[..name.len()].copy_from_slice(name);
                EntryName::InPlace { length, bytes }
            }
            _ => EntryName::Boxed(name.into()),
        }
    }
}

#[cfg(test)]
mod tests;
