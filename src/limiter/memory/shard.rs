//! A part of the keys, under a lock of its own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::{Error, ErrorKind};

/// The most keys that one decision looks at to find one to drop, so that no decision holds
/// the lock for long.
const LOOKS: usize = 256;

/// The keys that each decision looks at besides, so that the first of them can nearly
/// always be dropped.
const UPKEEP: usize = 2;

pub(super) struct Shard<S> {
    capacity: usize,
    entries: HashMap<Arc<str>, Entry<S>>,
    /// Every key once, by an instant before which it cannot be old.
    ages: BinaryHeap<Reverse<(i64, Arc<str>)>>,
}

struct Entry<S> {
    /// For reservations, which name it.
    name: Arc<str>,
    /// `None` once it was reset.
    state: Option<S>,
    /// The instant from which on it is as good as new.
    expires_at: i64,
}

/// What became of the key that may be old before all others.
enum Oldest {
    /// None may be old yet.
    Live,
    /// It was changed since, and has its place behind others.
    Moved,
    /// It is as good as new.
    Old,
}

impl<S> Shard<S> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), ages: BinaryHeap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Lets `change` have the state of a key. It returns since when the state is old if it changed
    /// it. Returns what else it returned, and the name as it is held if it changed the state.
    ///
    /// # Errors
    ///
    /// If the key is new, and no old one was found to make room for it.
    pub(super) fn update<T>(
        &mut self,
        name: &str,
        now: i64,
        change: impl FnOnce(&mut Option<S>) -> (T, Option<i64>),
    ) -> Result<(T, Option<Arc<str>>), Error> {
        if let Some(entry) = self.entries.get_mut(name) {
            let (answer, expires_at) = change(&mut entry.state);
            entry.expires_at = expires_at.unwrap_or(entry.expires_at);
            return Ok((answer, expires_at.map(|_| Arc::clone(&entry.name))));
        }
        let mut state = None;
        let (answer, expires_at) = change(&mut state);
        let Some(expires_at) = expires_at else { return Ok((answer, None)) };
        if self.entries.len() >= self.capacity && !self.make_room(now) {
            return Err(Error::new(ErrorKind::Capacity, "the memory is full of live keys"));
        }
        let name: Arc<str> = name.into();
        let entry = Entry { name: Arc::clone(&name), state, expires_at };
        self.ages.push(Reverse((expires_at, Arc::clone(&name))));
        self.entries.insert(Arc::clone(&name), entry);
        Ok((answer, Some(name)))
    }

    /// Looks at a few keys that may be old. Those that are old go, if they `may_go`.
    pub(super) fn keep_up(&mut self, now: i64, may_go: bool) {
        for _ in 0..UPKEEP {
            match self.look(now) {
                Oldest::Live => return,
                Oldest::Moved => {}
                Oldest::Old if may_go => self.drop_oldest(),
                Oldest::Old => return,
            }
        }
    }

    /// Drops an old key if it finds one.
    fn make_room(&mut self, now: i64) -> bool {
        for _ in 0..LOOKS {
            match self.look(now) {
                Oldest::Live => return false,
                Oldest::Moved => {}
                Oldest::Old => {
                    self.drop_oldest();
                    return true;
                }
            }
        }
        false
    }

    fn look(&mut self, now: i64) -> Oldest {
        let Some(mut oldest) = self.ages.peek_mut() else { return Oldest::Live };
        let Reverse((age, name)) = &*oldest;
        if *age > now {
            return Oldest::Live;
        }
        let Some(expires_at) = self
            .entries
            .get(name)
            .map(|entry| entry.expires_at)
            .filter(|expires_at| *expires_at > now)
        else {
            return Oldest::Old;
        };
        oldest.0.0 = expires_at;
        Oldest::Moved
    }

    fn drop_oldest(&mut self) {
        if let Some(Reverse((_, name))) = self.ages.pop() {
            self.entries.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(shard: &mut Shard<i64>, name: usize, now: i64, expires_at: i64) -> Result<(), Error> {
        let set = |state: &mut Option<i64>| {
            *state = Some(expires_at);
            ((), Some(expires_at))
        };
        shard.update(&name.to_string(), now, set).map(drop)
    }

    fn looked_at(shard: &Shard<i64>, now: i64) -> usize {
        shard.ages.iter().filter(|Reverse((age, _))| *age > now).count()
    }

    /// Every key might be old, as it was when it came, and none is, since all were changed since.
    #[test]
    fn a_decision_looks_at_a_bounded_number_of_keys() {
        const KEYS: usize = 10_000;
        let mut shard = Shard::new(KEYS);
        for expires_at in [10, 1_000] {
            (0..KEYS).for_each(|key| put(&mut shard, key, 0, expires_at).unwrap());
        }
        assert_eq!(looked_at(&shard, 100), 0);
        for decisions in 1..=3 {
            assert_eq!(put(&mut shard, KEYS, 100, 1_000).unwrap_err().kind(), ErrorKind::Capacity);
            assert_eq!(looked_at(&shard, 100), decisions * LOOKS);
        }
        shard.keep_up(100, true);
        assert_eq!(looked_at(&shard, 100), 3 * LOOKS + UPKEEP);
        // One that is old is found at once where decisions keep up with the changes.
        (0..KEYS).for_each(|_| shard.keep_up(100, false));
        put(&mut shard, KEYS, 1_000, 2_000).unwrap();
        assert_eq!(shard.len(), KEYS);
    }

    #[test]
    fn old_keys_that_may_not_go_stay_until_room_is_needed() {
        let mut shard = Shard::new(3);
        (0..3).for_each(|key| put(&mut shard, key, 0, 10).unwrap());
        shard.keep_up(20, false);
        assert_eq!(shard.len(), 3);
        put(&mut shard, 3, 20, 30).unwrap();
        assert_eq!(shard.len(), 3);
        shard.keep_up(20, true);
        assert_eq!(shard.len(), 1);
    }
}
