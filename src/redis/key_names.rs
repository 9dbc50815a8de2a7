//! The names of keys in Redis.
//!
//! A name has the prefix, the limiter, the algorithm with its format's version, and the key in
//! braces: `sluice:api:tb1:{user-42}`. The braces keep all keys of one decision together in a
//! cluster. For all requests, a name stays short, and no brace in it comes from the request. Two
//! different keys never share a name.
//!
//! A colon separates the parts, so a colon in the limiter's name is percent-encoded, as a space is:
//! `eu:my api` becomes `eu%3Amy%20api`. Read backwards from the braces, the parts are unambiguous
//! for every prefix. Braces and `%` in a prefix become `%7B`, `%7D` and `%25`, since a cluster uses
//! the first braces of a name as its hash tag.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use redis_once::calls::{HASH_SLOTS, hash_slot};

use crate::algorithm::ScriptPart;
use crate::core::digest::{digest_of, short};

/// Chooses the end of a key's name in Redis, and so its hash slot in a cluster.
///
/// A cluster runs a script only on keys of one slot. Usually each key has its own slot. With
/// buckets, the keys of a limiter share so few slots that charges of different keys share calls:
/// `sluice:api:tb1:{17}:alice`.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    /// The number in the braces of each bucket. `None`: the key itself is in the braces.
    tags: Option<Arc<[u32]>>,
}

/// Returns the text before the braces for each part of the limiter called `name`. A part is a
/// quota. Several parts are numbered.
pub(super) fn key_prefixes(parts: &[ScriptPart], prefix: &str, name: &str) -> Vec<String> {
    let prefix = safe_prefix(prefix);
    let name = percent_encoded(&short(name), |character| {
        character.is_ascii() && character != ':' && is_harmless(character as u8)
    });
    let key_prefix = |(index, part): (usize, &ScriptPart)| {
        let mut key_prefix = format!("{prefix}:{name}:");
        if parts.len() > 1 {
            write!(key_prefix, "{}", index + 1).expect("a string takes all");
        }
        key_prefix.extend([part.tag, ":"]);
        key_prefix
    };
    parts.iter().enumerate().map(key_prefix).collect()
}

/// Returns the first part of the names of all keys, without braces.
pub(super) fn safe_prefix(prefix: &str) -> String {
    percent_encoded(prefix, |character| !matches!(character, '%' | '{' | '}'))
}

/// Returns `key` in braces: the suffix of its names in Redis.
pub(super) fn hash_tagged(key: &str) -> String {
    ["{", &verbatim_or_digest(key), "}"].concat()
}

/// Percent-encodes the bytes of all characters of `text` that are not kept.
fn percent_encoded(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for character in text.chars() {
        if is_kept(character) {
            encoded.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            write!(encoded, "%{byte:02X}").expect("a string takes all");
        }
    }
    encoded
}

fn is_harmless(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'@' | b':' | b'/' | b'-')
}

/// Returns `text` itself if it is short and has only safe characters, or else its digest.
fn verbatim_or_digest(text: &str) -> Cow<'_, str> {
    match text.bytes().all(is_harmless) {
        true => short(text),
        false => Cow::Owned(digest_of(text)),
    }
}

impl Buckets {
    /// Makes `count` buckets, 1 to 16,384.
    ///
    /// Each bucket has an equal share of all slots, and is in one slot of its share. So masters
    /// with equal shares have the same number of buckets.
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

    /// Returns the end of a key's names in Redis.
    pub(super) fn suffix(&self, key: &str) -> String {
        let own = hash_tagged(key);
        let Some(tags) = &self.tags else { return own };
        let tag = tags[share(hash_slot(&own), tags.len() as u16)];
        format!("{{{tag}}}:{}", verbatim_or_digest(key))
    }
}

/// Returns the index of the share that contains a slot, if all slots are divided into `count` equal
/// shares.
fn share(hash_slot: u16, count: u16) -> usize {
    usize::from(hash_slot) * usize::from(count) / usize::from(HASH_SLOTS)
}

#[cfg(test)]
mod tests {
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
        for key in ["{victim}", "}x", "a}b", "{}", "\0", "é", "a b", "h:00", "\r\n$3\r\nfoo", &long]
        {
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
}
