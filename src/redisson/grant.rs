//! The bytes that a grant is known by, and client ids: nobody else's, in any process.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes that a grant is known by.
pub(super) type Grant = [u8; 16];

/// Grants, each of other bytes: a random number of 128 bits, counted up.
#[derive(Debug)]
pub(super) struct Grants {
    first: u128,
    count: AtomicU64,
}

impl Default for Grants {
    fn default() -> Self {
        Self { first: random(), count: AtomicU64::new(0) }
    }
}

impl Grants {
    pub(super) fn next(&self) -> Grant {
        let number = self.count.fetch_add(1, Relaxed);
        self.first.wrapping_add(number.into()).to_be_bytes()
    }
}

/// A random UUID, as Java writes one.
pub(super) fn uuid() -> String {
    written(random())
}

fn written(random: u128) -> String {
    let number = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{number:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// By keys of the operating system's, which no seed of an application's changes.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn client_ids_are_random_uuids_of_version_4() {
        assert_eq!(written(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(written(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_ne!(uuid(), uuid());
    }

    #[test]
    fn no_two_grants_are_alike() {
        let sources: Vec<_> = (0..100).map(|_| Grants::default()).collect();
        let grants: HashSet<_> =
            sources.iter().flat_map(|source| [source.next(), source.next()]).collect();
        assert_eq!(grants.len(), 200);
    }
}
