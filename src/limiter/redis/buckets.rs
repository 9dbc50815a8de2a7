//! How a limiter names keys, and so which hash slots of a cluster they share.
//!
//! A cluster runs a script on keys of one slot. Usually each key has a slot of its own. With
//! buckets the keys of a limiter share so few slots that charges of different keys share calls:
//! `sluice:api:tb1:{17}:alice`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::key::{hash_tagged, push_verbatim_or_digest};
use super::slot::{HASH_SLOTS, hash_slot};

/// The end of a key's name.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    /// What stands in the braces for each bucket. None: the key itself.
    tags: Option<Arc<[u32]>>,
}

impl Buckets {
    /// So many buckets, at least 1.
    ///
    /// Each bucket has an equal share of all slots, and lies in one slot of its share. So masters
    /// with equal shares have equally many buckets.
    pub(super) fn new(count: u16) -> Self {
        let count = count.clamp(1, HASH_SLOTS);
        let (mut tags, mut missing) = (vec![None; usize::from(count)], count);
        for tag in 0.. {
            let bucket = &mut tags[share(hash_slot(&tag.to_string()), count)];
            if bucket.is_none() {
                *bucket = Some(tag);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        Self { tags: Some(tags.into_iter().flatten().collect()) }
    }

    /// What the names of a key in Redis end with.
    pub(super) fn suffix(&self, key: &str) -> String {
        let own = hash_tagged(key);
        let Some(tags) = &self.tags else { return own };
        let tag = tags[share(hash_slot(&own), tags.len() as u16)];
        let mut name = String::with_capacity(own.len() + 6);
        write!(name, "{{{tag}}}:").expect("a string takes all");
        push_verbatim_or_digest(&mut name, key);
        name
    }
}

/// Which of `count` equal shares of all slots holds a slot.
fn share(hash_slot: u16, count: u16) -> usize {
    usize::from(hash_slot) * usize::from(count) / usize::from(HASH_SLOTS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_bucket_lies_in_its_share_of_the_slots() {
        for count in [1, 2, 3, 96, 1_000] {
            let buckets = Buckets::new(count);
            let tags = buckets.tags.as_ref().expect("buckets");
            let shares = tags.iter().map(|tag| share(hash_slot(&tag.to_string()), count));
            assert!(shares.eq(0..usize::from(count)), "{count}");
        }
    }

    #[test]
    fn a_key_stays_in_its_share_and_keys_stay_apart() {
        let buckets = Buckets::new(12);
        let (mut names, mut slots) = (HashSet::new(), HashSet::new());
        for number in 0..2_000 {
            let key = format!("user {number}");
            let name = buckets.suffix(&key);
            let slot = hash_slot(&format!("sluice:api:tb1:{name}"));
            assert_eq!(share(slot, 12), share(hash_slot(&hash_tagged(&key)), 12), "{name}");
            slots.insert(slot);
            assert!(names.insert(name));
        }
        assert_eq!(slots.len(), 12);
        assert!(Buckets::new(1).suffix("alice").ends_with("}:alice"));
        assert_eq!(Buckets::default().suffix("alice"), "{alice}");
    }
}
