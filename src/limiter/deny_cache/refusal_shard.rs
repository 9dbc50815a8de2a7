//! A shard: a limited number of refusals under one lock.

use std::num::NonZeroU64;
use std::time::Duration;

use hashbrown::HashTable;
use tokio::time::Instant;

use super::cached_refusal::{CachedRefusal, KeyHash};

/// The number of refusals that are examined for a replacement: an expired one, or else the oldest
/// of them.
const EXAMINED: usize = 8;

pub(super) struct RefusalShard {
    capacity: usize,
    refusals: HashTable<Box<CachedRefusal>>,
    /// The bucket where the next search for a replacement starts.
    next: usize,
    /// The changes of the shard's keys. Empty until a key is changed.
    changes: Vec<SlotChange>,
    /// The changes of all keys at once.
    change_of_all: SlotChange,
}

impl RefusalShard {
    pub(super) fn new(capacity: usize) -> Self {
        let (refusals, changes) = (HashTable::new(), Vec::new());
        Self { capacity, refusals, next: 0, changes, change_of_all: SlotChange::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.refusals.len()
    }

    /// Returns the refusal of a key, if it has one that has not expired.
    pub(super) fn get(&mut self, key: KeyHash, now: Instant) -> Option<&CachedRefusal> {
        let entry = self.refusals.find_entry(key.place.get(), |one| one.place() == key.place);
        let entry = entry.ok()?;
        if entry.get().is_over(now) {
            entry.remove();
            return None;
        }
        Some(&**entry.into_mut()).filter(|refusal| refusal.question.key == key)
    }

    /// Keeps a refusal, in place of the key's last one. It is kept for a short time if a change of
    /// the key may not have reached the store yet. If the shard is full, it replaces an expired
    /// refusal, or else the oldest of eight.
    pub(super) fn insert(&mut self, mut refusal: CachedRefusal) {
        let (place, asked_at) = (refusal.place(), refusal.question.asked_at);
        if self.is_settling(place, asked_at) {
            refusal.end_soon();
        }
        self.remove(place);
        if self.refusals.len() >= self.capacity {
            self.make_room(asked_at);
        }
        self.refusals.insert_unique(place.get(), Box::new(refusal), |one| one.place().get());
    }

    /// Removes an expired refusal, or else the oldest of the next ones in turn.
    fn make_room(&mut self, now: Instant) {
        let buckets = self.refusals.num_buckets();
        let in_turn = (0..buckets).map(|step| (self.next + step) % buckets);
        let kept = in_turn.filter_map(|bucket| Some((bucket, self.refusals.get_bucket(bucket)?)));
        let oldest = kept
            .take(EXAMINED)
            .min_by_key(|(_, refusal)| (!refusal.is_over(now), refusal.question.asked_at));
        let Some((bucket, _)) = oldest else { return };
        self.next = bucket + 1;
        if let Ok(entry) = self.refusals.get_bucket_entry(bucket) {
            entry.remove();
        }
    }

    fn remove(&mut self, place: NonZeroU64) {
        let entry = self.refusals.find_entry(place.get(), |one| one.place() == place);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }

    /// Returns the number of times that a key, or another key in its slot, was forgotten.
    pub(super) fn forgotten(&self, place: NonZeroU64) -> u64 {
        self.change_of_all.forgotten + self.change(place).forgotten
    }

    pub(super) fn forget(&mut self, place: NonZeroU64) {
        self.change_mut(place).forgotten += 1;
        self.remove(place);
    }

    /// Records that a change of the key, from `asked_at` or later, may not have reached the store
    /// yet. Refusals since then end soon.
    pub(super) fn note_refund(&mut self, place: NonZeroU64, asked_at: Instant, now: Instant) {
        self.change_mut(place).settling_since = Some(now);
        let refusal = self.refusals.find_mut(place.get(), |one| one.place() == place);
        if let Some(refusal) = refusal {
            refusal.end_soon_if_kept_since(asked_at, now);
        }
    }

    /// Forgets all keys, each of which may have been changed.
    pub(super) fn forget_all(&mut self, now: Instant) {
        self.change_of_all.forgotten += 1;
        self.change_of_all.settling_since = Some(now);
        self.refusals.clear();
    }

    /// Returns true if a change of the key may reach the store after a question from `asked_at`.
    fn is_settling(&self, place: NonZeroU64, asked_at: Instant) -> bool {
        let since = self.change_of_all.settling_since.max(self.change(place).settling_since);
        since.is_some_and(|since| asked_at.saturating_duration_since(since) < SETTLING_TIME)
    }

    fn change(&self, place: NonZeroU64) -> SlotChange {
        self.changes.get(slot(place)).copied().unwrap_or_default()
    }

    fn change_mut(&mut self, place: NonZeroU64) -> &mut SlotChange {
        self.changes.resize(SLOTS, SlotChange::default());
        &mut self.changes[slot(place)]
    }
}

/// The longest time until a change reaches the store. [`Redis`](crate::Redis) waits 500 ms for a
/// late answer, and then sends a refund for up to 500 ms.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// The number of slots of a shard's keys. A change of one key counts as a change of all keys in its
/// slot.
const SLOTS: usize = 1_024;

#[derive(Clone, Copy, Default)]
struct SlotChange {
    forgotten: u64,
    /// The last change that perhaps had not reached the store.
    settling_since: Option<Instant>,
}

/// Returns the slot of a key, from bits that neither the choice of the shard nor the map uses.
fn slot(place: NonZeroU64) -> usize {
    (place.get() >> 40) as usize % SLOTS
}

#[cfg(test)]
mod tests;
