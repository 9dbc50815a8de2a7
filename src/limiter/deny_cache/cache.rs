//! The refusals of all keys, in shards.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

use super::cached_refusal::{CachedRefusal, Question};
use super::refusal_shard::RefusalShard;
use crate::core::Decision;
use crate::core::sync::{MutexGuard, lock};
use crate::limiter::shards::Shards;

const DEFAULT_MAX_AGE: Duration = Duration::from_secs(1);
const DEFAULT_MAX_KEYS: usize = 100_000;

/// The refusals that a [`DenyCache`](crate::limiter::DenyCache) repeats.
pub struct Cache {
    pub(super) max_age: Duration,
    pub(super) max_keys: usize,
    shards: Shards<RefusalShard>,
}

/// A question that the inner limiter must answer.
pub(super) struct Miss {
    question: Question,
    /// The number of times that the key was forgotten before the inner limiter was asked.
    forgotten: u64,
    /// True if the kept refusal of the key does not answer this question.
    has_refusal: bool,
}

impl Miss {
    pub(super) fn place(&self) -> NonZeroU64 {
        self.question.key.place
    }
}

impl Cache {
    pub(super) fn new(max_age: Duration, max_keys: usize) -> Self {
        Self { max_age, max_keys, shards: Shards::new(max_keys, RefusalShard::new) }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.each().map(|shard| shard.len()).sum()
    }

    pub(super) fn look_up(&self, question: Question) -> Result<Decision, Miss> {
        let place = question.key.place;
        let mut shard = self.shard(place);
        let refusal = shard.get(question.key, question.asked_at);
        if let Some(refused) = refusal.and_then(|refusal| refusal.answer(&question)) {
            return Ok(refused);
        }
        let has_refusal = refusal.is_some();
        Err(Miss { forgotten: shard.forgotten(place), has_refusal, question })
    }

    /// Keeps a refusal, unless the key was forgotten since the inner limiter was asked.
    ///
    /// An admitted charge may delay the refused charge, so that refusal is forgotten.
    pub(super) fn learn(&self, miss: Miss, decision: &mut Decision) {
        let place = miss.place();
        if let Some(reservation) = decision.reservation_mut() {
            reservation.add_charged(place);
        }
        if decision.is_admitted() && miss.has_refusal {
            self.forget(place);
        }
        if let Some(refusal) = CachedRefusal::of(miss.question, decision, self.max_age) {
            let mut shard = self.shard(place);
            if shard.forgotten(place) == miss.forgotten {
                shard.insert(refusal);
            }
        }
    }

    pub(super) fn forget(&self, place: NonZeroU64) {
        self.shard(place).forget(place);
    }

    /// Forgets a key that was changed. The change may not have reached the store yet.
    pub(super) fn forget_settling(&self, place: NonZeroU64) {
        let (mut shard, now) = (self.shard(place), Instant::now());
        shard.forget(place);
        shard.note_refund(place, now, now);
    }

    /// Records a question without an answer, whose charge may be taken and refunded later. Current
    /// refusals of the key end soon.
    pub(super) fn unanswered(&self, miss: &Miss) {
        let mut shard = self.shard(miss.place());
        shard.note_refund(miss.place(), miss.question.asked_at, Instant::now());
    }

    pub(super) fn forget_all(&self) {
        let now = Instant::now();
        self.shards.each().for_each(|mut shard| shard.forget_all(now));
    }

    fn shard(&self, place: NonZeroU64) -> MutexGuard<'_, RefusalShard> {
        lock(self.shards.of(place.get()))
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_AGE, DEFAULT_MAX_KEYS)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("max_age", &self.max_age)
            .field("max_keys", &self.max_keys)
            .field("len", &self.len())
            .finish()
    }
}
