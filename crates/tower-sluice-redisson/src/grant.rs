//! The random bytes that identify a grant and differ in every process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uuid::Uuid;

/// The bytes that identify a grant.
pub(super) type GrantId = [u8; 16];

/// Makes the bytes of each grant: a random number, counted up.
#[derive(Debug)]
pub(super) struct GrantIds {
    first: u128,
    count: AtomicU64,
}

impl Default for GrantIds {
    fn default() -> Self {
        Self { first: Uuid::new_v4().as_u128(), count: AtomicU64::new(0) }
    }
}

impl GrantIds {
    pub(super) fn next(&self) -> GrantId {
        let number = self.count.fetch_add(1, Relaxed);
        self.first.wrapping_add(number.into()).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_grants_are_alike() {
        let sources: Vec<_> = (0..100).map(|_| GrantIds::default()).collect();
        let grants: HashSet<_> =
            sources.iter().flat_map(|source| [source.next(), source.next()]).collect();
        assert_eq!(grants.len(), 200);
    }
}
