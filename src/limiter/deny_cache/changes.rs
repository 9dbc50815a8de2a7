//! The keys that were changed, and the changes that may still be on their way to a store.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

/// The longest time that a change may be on its way. [`Redis`](crate::Redis) waits 500 ms for a
/// late answer, and sends a refund for 500 ms more.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// The slots of a shard's keys. A change of one key counts as a change of all keys in its slot.
const SLOTS: usize = 1_024;

/// The changes of one shard's keys.
#[derive(Default)]
pub(super) struct Changes {
    /// Empty until a key is changed.
    slots: Vec<Change>,
    all: Change,
}

#[derive(Clone, Copy, Default)]
struct Change {
    /// The number of times that a key was forgotten.
    forgotten: u64,
    /// The last change that was perhaps on its way.
    settling_since: Option<Instant>,
}

impl Changes {
    /// Returns the number of times that a key was forgotten, or one that shares its slot.
    pub(super) fn forgotten(&self, place: NonZeroU64) -> u64 {
        self.all.forgotten + self.slot(place).forgotten
    }

    /// Returns true if a change of the key may reach the store after a question that was asked at
    /// `asked_at`.
    pub(super) fn is_settling(&self, place: NonZeroU64, asked_at: Instant) -> bool {
        let since = self.all.settling_since.max(self.slot(place).settling_since);
        since.is_some_and(|since| asked_at.saturating_duration_since(since) < SETTLING_TIME)
    }

    pub(super) fn forget(&mut self, place: NonZeroU64) {
        self.slot_mut(place).forgotten += 1;
    }

    pub(super) fn settle(&mut self, place: NonZeroU64, now: Instant) {
        self.slot_mut(place).settling_since = Some(now);
    }

    /// Forgets all keys, each of which may have been changed.
    pub(super) fn forget_all(&mut self, now: Instant) {
        self.all.forgotten += 1;
        self.all.settling_since = Some(now);
    }

    fn slot(&self, place: NonZeroU64) -> Change {
        self.slots.get(slot(place)).copied().unwrap_or_default()
    }

    fn slot_mut(&mut self, place: NonZeroU64) -> &mut Change {
        self.slots.resize(SLOTS, Change::default());
        &mut self.slots[slot(place)]
    }
}

/// Takes other bits than those that choose the shard, and those that the map uses.
fn slot(place: NonZeroU64) -> usize {
    (place.get() >> 40) as usize % SLOTS
}
