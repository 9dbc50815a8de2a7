//! The hashes that stand for a key in the cache, so that every entry has one size.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::num::NonZeroU64;
use std::sync::LazyLock;

use crate::Charge;

/// 128 bits that stand for a key. Their seeds are random, so no caller can find two keys whose
/// hashes are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash {
    /// The place at which the key is found. A reservation keeps this part.
    pub(super) place: NonZeroU64,
    /// Tells keys apart whose places are equal, and charges of the same parts whose costs or quotas
    /// differ.
    pub(super) check: u64,
}

/// All caches of a process have the same seeds: where one is inside of another, both know the key
/// of a reservation.
static SEEDS: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::new(), RandomState::new()]);

impl KeyHash {
    pub(super) fn of(charge: &Charge) -> Self {
        let [place, check] = if charge.has_parts() {
            let mut hashers = SEEDS.each_ref().map(RandomState::build_hasher);
            hash_keys(charge, &mut hashers[0]);
            hash_keys(charge, &mut hashers[1]);
            charge.hash_terms_of_parts(&mut hashers[1]);
            hashers.map(|hasher| hasher.finish())
        } else {
            SEEDS.each_ref().map(|seed| seed.hash_one(charge.key()))
        };
        Self { place: NonZeroU64::new(place).unwrap_or(NonZeroU64::MIN), check }
    }
}

/// Hashes the keys of parts. No text begins with the first byte, so no single key hashes the same.
fn hash_keys(charge: &Charge, hasher: &mut impl Hasher) {
    hasher.write_u8(0xff);
    hasher.write_usize(charge.parts().len());
    for part in charge.parts() {
        match part {
            None => hasher.write_u8(0),
            Some(part) if part.has_parts() => hash_keys(part, hasher),
            Some(part) => {
                hasher.write_u8(1);
                part.key().hash(hasher);
            }
        }
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
