//! What stands for a key in the cache: hashes of it, so that every entry has one size.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU64;
use std::sync::LazyLock;

/// 128 bits that stand for a key. Their seeds are random, so no caller can find two keys whose
/// hashes are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash {
    /// Where the key is found. A reservation keeps this part.
    pub(super) place: NonZeroU64,
    /// Tells keys apart whose places are equal.
    pub(super) check: u64,
}

/// All caches of a process have the same seeds: where one is inside of another, both know the key
/// of a reservation.
static SEEDS: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::new(), RandomState::new()]);

impl KeyHash {
    pub(super) fn of(key: &str) -> Self {
        let [place, check] = SEEDS.each_ref().map(|seed| seed.hash_one(key));
        Self { place: NonZeroU64::new(place).unwrap_or(NonZeroU64::MIN), check }
    }
}

/// Returns a number that is a hash already.
#[derive(Debug, Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
