//! The names of keys in Redis.
//!
//! A name has the prefix, the limiter, the algorithm with its format's version, and the key in
//! braces: `sluice:api:tb1:{user-42}`. The braces keep all keys of one decision together in a
//! cluster. No brace in a name comes from a request, and two different keys never share a name.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use redis_once::calls::{HASH_SLOTS, hash_slot};

use crate::algorithm::ScriptPart;
use crate::core::digest::{digest_of, short};

/// Chooses the end of a key's name in Redis, and so its hash slot in a cluster.
///
/// With buckets, the keys of a limiter share so few slots that charges of different keys share
/// calls: `sluice:api:tb1:{17}:alice`.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    /// The number in the braces of each bucket. `None`: the key itself is in the braces.
    tags: Option<Arc<[u32]>>,
}

/// Returns the text before the braces for each part of the limiter called `name`. A part is a
/// quota. Several parts are numbered.
pub(super) fn key_prefixes(parts: &[ScriptPart], prefix: &str, name: &str) -> Vec<String> {
    let begin = limiter_prefix(prefix, name);
    let key_prefix = |(index, part): (usize, &ScriptPart)| {
        let mut key_prefix = begin.clone();
        if parts.len() > 1 {
            write!(key_prefix, "{}", index + 1).expect("a string takes all");
        }
        key_prefix.extend([part.tag, ":"]);
        key_prefix
    };
    parts.iter().enumerate().map(key_prefix).collect()
}

/// Returns the begin of the names of all keys of the limiter called `name`.
pub(super) fn limiter_prefix(prefix: &str, name: &str) -> String {
    let name = percent_encoded(&short(name), |character| {
        character.is_ascii() && character != ':' && is_harmless(character as u8)
    });
    format!("{}:{name}:", safe_prefix(prefix))
}

/// Returns the first part of the names of all keys, without braces.
pub(super) fn safe_prefix(prefix: &str) -> String {
    percent_encoded(prefix, |character| !matches!(character, '%' | '{' | '}'))
}

/// Returns `key` in braces: the suffix of its names in Redis.
pub(super) fn hash_tagged(key: &str) -> String {
    let key = verbatim_or_digest(key);
    let mut tagged = String::with_capacity(key.len() + 2);
    tagged.push('{');
    tagged.push_str(&key);
    tagged.push('}');
    tagged
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

/// Reverses [`percent_encoded`]. `None`: it writes no such text.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn is_harmless(byte: u8) -> bool {
    HARMLESS[usize::from(byte)]
}

/// Each byte of a key is looked up.
const HARMLESS: [bool; 256] = {
    let (mut harmless, mut byte) = ([false; 256], 0);
    while byte < 256 {
        let own = byte as u8;
        harmless[byte] = own.is_ascii_alphanumeric()
            || matches!(own, b'.' | b'_' | b'~' | b'@' | b':' | b'/' | b'-');
        byte += 1;
    }
    harmless
};

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
mod tests;
