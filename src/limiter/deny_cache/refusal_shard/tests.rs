use std::time::Duration;

use super::super::cached_refusal::Question;
use super::*;
use crate::core::{Charge, Decision, Outcome};

fn key(place: u64, check: u64) -> KeyHash {
    KeyHash { place: NonZeroU64::new(place).unwrap(), check }
}

fn refusal(key: KeyHash) -> CachedRefusal {
    let retry_after = Some(Duration::from_secs(3_600));
    let mut question = Question::of(&Charge::new("key")).unwrap();
    question.key = key;
    let denial = Decision::new(Outcome::Deny { retry_after });
    CachedRefusal::of(question, &denial, Duration::MAX).unwrap()
}

/// Makes a shard of the keys 1 to `keys`.
fn shard(capacity: usize, keys: u64) -> RefusalShard {
    let mut shard = RefusalShard::new(capacity);
    (1..=keys).for_each(|place| shard.insert(refusal(key(place, 0))));
    shard
}

fn kept(shard: &mut RefusalShard) -> Vec<u64> {
    let now = Instant::now();
    (1..=20).filter(|place| shard.get(key(*place, 0), now).is_some()).collect()
}

#[test]
fn keys_of_one_place_are_told_apart() {
    let mut shard = shard(3, 1);
    let now = Instant::now();
    assert!(shard.get(key(1, 0), now).is_some() && shard.get(key(1, 1), now).is_none());
    shard.insert(refusal(key(1, 1)));
    assert!(shard.get(key(1, 0), now).is_none() && shard.get(key(1, 1), now).is_some());
    assert_eq!(shard.len(), 1);
}

#[test]
fn a_full_shard_keeps_the_newest() {
    let mut shard = shard(4, 11);
    assert_eq!((kept(&mut shard), shard.len()), (vec![8, 9, 10, 11], 4));
    shard.insert(refusal(key(9, 0)));
    // A replaced key is not found any more, so forgetting it removes no other key.
    shard.forget(NonZeroU64::MIN);
    assert_eq!((kept(&mut shard), shard.len()), (vec![8, 9, 10, 11], 4));
}

#[test]
fn a_full_shard_replaces_the_oldest_answer() {
    let mut shard = RefusalShard::new(4);
    let begun = Instant::now();
    for (second, place) in [1, 2, 3, 4, 1, 5].into_iter().enumerate() {
        let mut refusal = refusal(key(place, 0));
        refusal.question.asked_at = begun + Duration::from_secs(second as u64);
        shard.insert(refusal);
    }
    assert_eq!(kept(&mut shard), [1, 3, 4, 5]);
}

#[test]
fn a_forgotten_key_leaves_the_others() {
    let mut shard = shard(9, 6);
    for place in [2, 6, 1, 7] {
        shard.forget(NonZeroU64::new(place).unwrap());
    }
    assert_eq!(kept(&mut shard), [3, 4, 5]);
    shard.insert(refusal(key(2, 0)));
    assert_eq!(kept(&mut shard), [2, 3, 4, 5]);
}

#[test]
fn what_was_forgotten_is_counted() {
    let mut shard = shard(9, 6);
    let (one, other) = (NonZeroU64::MIN, NonZeroU64::MAX);
    assert_eq!((shard.forgotten(one), shard.forgotten(other)), (0, 0));
    shard.forget(one);
    assert_eq!((shard.forgotten(one), shard.forgotten(other)), (1, 0));
    shard.forget_all(Instant::now());
    assert_eq!((shard.forgotten(one), shard.forgotten(other)), (2, 1));
    assert!(kept(&mut shard).is_empty());
}
