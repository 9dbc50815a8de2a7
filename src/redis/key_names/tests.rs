use std::collections::HashSet;

use super::*;
use crate::algorithm::{InLua, TokenBucket};
use crate::core::quota::Quota;

const BUCKET: TokenBucket = TokenBucket::new(Quota::per_second(5));

#[test]
fn harmless_keys_stay_readable() {
    let one = |prefix, name| key_prefixes(&BUCKET.parts(), prefix, name);
    assert_eq!(one("sluice", "api"), ["sluice:api:tb1:"]);
    let pair = key_prefixes(&vec![BUCKET; 2].parts(), "sluice", "api");
    assert_eq!(pair, ["sluice:api:1tb1:", "sluice:api:2tb1:"]);
    assert_eq!(one("prod:eu", "api"), ["prod:eu:api:tb1:"]);
    assert_eq!(one("prod", "eu:api"), ["prod:eu%3Aapi:tb1:"]);
    assert_eq!(one("{prod}", "api"), ["%7Bprod%7D:api:tb1:"]);
    assert_eq!(one("sluice", "my api"), ["sluice:my%20api:tb1:"]);
    assert_eq!(one("sluice", "100%/{é}"), ["sluice:100%25/%7B%C3%A9%7D:tb1:"]);
    assert_eq!(hash_tagged("user-42@example.org"), "{user-42@example.org}");
}

#[test]
fn everything_else_is_digested() {
    let long = "x".repeat(65);
    for key in ["{victim}", "}x", "a}b", "{}", "\0", "é", "a b", "h:00", "\r\n$3\r\nfoo", &long] {
        let name = hash_tagged(key);
        assert_eq!(name.len(), "{h:}".len() + 32, "{key:?}");
        assert_eq!(name.matches(['{', '}']).count(), 2, "{key:?}");
    }
}

/// Returns all strings of these characters up to a length, including the empty string.
fn strings(characters: &[&str], longest: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = 0;
    for _ in 0..longest {
        let (from, to) = (last, all.len());
        last = to;
        for index in from..to {
            let longer = characters.iter().map(|more| format!("{}{more}", all[index]));
            all.extend(longer.collect::<Vec<_>>());
        }
    }
    all
}

/// Asserts that prefix, limiter and key are never confused, and that only the key determines
/// the slot.
#[track_caller]
fn assert_distinct(algorithm: &impl InLua, characters: &[&str], longest: [usize; 3]) {
    let [prefixes, limiters, keys] = longest.map(|longest| strings(characters, longest));
    let ends: Vec<_> = keys[1..].iter().map(|key| hash_tagged(key)).collect();
    let slots: Vec<_> = ends.iter().map(|end| hash_slot(end)).collect();
    let mut names = HashSet::new();
    for prefix in &prefixes {
        for limiter in &limiters[1..] {
            for key_prefix in key_prefixes(&algorithm.parts(), prefix, limiter) {
                for (end, slot_of_key) in ends.iter().zip(&slots) {
                    let name = format!("{key_prefix}{end}");
                    assert_eq!(hash_slot(&name), *slot_of_key, "{prefix} {limiter} {end}");
                    assert!(names.insert(name), "{prefix} {limiter} {end}");
                }
            }
        }
    }
}

// Cases 77 and 137.
#[test]
fn prefix_limiter_and_key_never_run_into_each_other() {
    assert_distinct(&BUCKET, &["a", "b", ":", "{"], [3, 3, 2]);
    assert_distinct(&BUCKET, &["a", ":", "{"], [2, 2, 4]);
    assert_distinct(&BUCKET, &["%", "7B", "3A", "20", " ", "}", "{", ":", "h:"], [2, 2, 1]);
    assert_distinct(&vec![BUCKET; 2], &["1tb1", "2tb1", ":"], [3, 3, 1]);
}

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
