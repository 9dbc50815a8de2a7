//! A shard: some of the keys, under their own lock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::{Error, ErrorKind};

/// The most keys that one decision examines to find one to evict, so that no decision holds
/// the lock for long.
const MAX_EXAMINED: usize = 256;

/// The keys that each decision examines in any case, so that a decision that needs room nearly
/// always finds an old key at once.
const EXAMINED_PER_DECISION: usize = 2;

pub(super) struct Shard<S> {
    capacity: usize,
    entries: HashMap<Arc<str>, Entry<S>>,
    /// Every key once, by an instant before which it does not expire.
    ages: BinaryHeap<Reverse<(i64, Arc<str>)>>,
}

struct Entry<S> {
    /// Shared with reservations.
    name: Arc<str>,
    /// `None` after a reset.
    state: Option<S>,
    /// When the state is equivalent to no state.
    expires_at: i64,
}

/// What was found about the key that may expire first.
enum Oldest {
    /// It cannot have expired yet, and so no key has.
    Live,
    /// It was changed since, and was moved behind other keys.
    Moved,
    /// It has expired.
    Expired,
}

impl<S> Shard<S> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), ages: BinaryHeap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Applies `change` to the state of a key. If `change` changes the state, it returns when the
    /// state expires. Returns the output of `change`, and the stored name if the state was changed.
    ///
    /// # Errors
    ///
    /// If the key is new, and no expired key was found to make room for it.
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

    /// Examines a few keys that may have expired. Evicts those that have, if it `may_evict`.
    pub(super) fn maintain(&mut self, now: i64, may_evict: bool) {
        for _ in 0..EXAMINED_PER_DECISION {
            match self.examine_oldest(now) {
                Oldest::Live => return,
                Oldest::Moved => {}
                Oldest::Expired if may_evict => self.evict_oldest(),
                Oldest::Expired => return,
            }
        }
    }

    /// Evicts an expired key if it finds one.
    fn make_room(&mut self, now: i64) -> bool {
        for _ in 0..MAX_EXAMINED {
            match self.examine_oldest(now) {
                Oldest::Live => return false,
                Oldest::Moved => {}
                Oldest::Expired => {
                    self.evict_oldest();
                    return true;
                }
            }
        }
        false
    }

    fn examine_oldest(&mut self, now: i64) -> Oldest {
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
            return Oldest::Expired;
        };
        oldest.0.0 = expires_at;
        Oldest::Moved
    }

    fn evict_oldest(&mut self) {
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

    fn examined(shard: &Shard<i64>, now: i64) -> usize {
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
        assert_eq!(examined(&shard, 100), 0);
        for decisions in 1..=3 {
            assert_eq!(put(&mut shard, KEYS, 100, 1_000).unwrap_err().kind(), ErrorKind::Capacity);
            assert_eq!(examined(&shard, 100), decisions * MAX_EXAMINED);
        }
        shard.maintain(100, true);
        assert_eq!(examined(&shard, 100), 3 * MAX_EXAMINED + EXAMINED_PER_DECISION);
        // One that is old is found at once where decisions keep up with the changes.
        (0..KEYS).for_each(|_| shard.maintain(100, false));
        put(&mut shard, KEYS, 1_000, 2_000).unwrap();
        assert_eq!(shard.len(), KEYS);
    }

    #[test]
    fn old_keys_that_may_not_go_stay_until_room_is_needed() {
        let mut shard = Shard::new(3);
        (0..3).for_each(|key| put(&mut shard, key, 0, 10).unwrap());
        shard.maintain(20, false);
        assert_eq!(shard.len(), 3);
        put(&mut shard, 3, 20, 30).unwrap();
        assert_eq!(shard.len(), 3);
        shard.maintain(20, true);
        assert_eq!(shard.len(), 1);
    }
}
