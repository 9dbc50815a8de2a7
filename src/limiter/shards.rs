//! Shards of the keys of a memory, a deny cache or a lease, each with its own lock.

use crate::core::sync::{Mutex, MutexGuard, lock};

/// Enough for the threads of most machines.
const SHARDS: usize = 16;
/// Smaller shards would often be full while others have room.
const MIN_SHARD_SIZE: usize = 256;
/// A table moves all of its keys when it grows, under its lock: so many in about a millisecond.
const MAX_SHARD_SIZE: usize = 16_384;

pub(super) struct Shards<S>(Box<[Mutex<S>]>);

impl<S> Shards<S> {
    /// Makes shards of equal size, which hold `max_keys` together. `shard` makes a shard of the
    /// given size.
    pub(super) fn new(max_keys: usize, shard: impl Fn(usize) -> S) -> Self {
        let count = (max_keys / MIN_SHARD_SIZE).clamp(1, SHARDS);
        let count = count.max(max_keys.div_ceil(MAX_SHARD_SIZE));
        // The first shards each hold one more key.
        let size = |index| max_keys / count + usize::from(index < max_keys % count);
        Self((0..count).map(|index| Mutex::new(shard(size(index)))).collect())
    }

    /// Returns the shard of a hash, from its middle bits, since tables use the highest and the
    /// lowest.
    #[inline]
    pub(super) fn of(&self, hash: u64) -> &Mutex<S> {
        let middle = (hash >> 24) as u32;
        let count = self.0.len() as u64;
        &self.0[((u64::from(middle) * count) >> 32) as usize]
    }

    /// Locks one shard after another.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, S>> {
        self.0.iter().map(lock)
    }
}

#[cfg(test)]
mod tests;
