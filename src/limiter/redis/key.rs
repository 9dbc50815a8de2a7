//! What a charge's key is called in Redis.
//!
//! Prefix, limiter, algorithm with its format's version, and the key in braces, so that a cluster keeps
//! all keys of one decision together: `sluice:api:tb1:{user-42}`. Whatever a request sends, a
//! name stays short and its braces are ours; two different keys never share one.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::algorithm::{InLua, Part};

/// The longest text that is kept verbatim, in bytes.
const LONGEST: usize = 64;

/// The hash slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// What stands before the braces for the limiter called `name`: once for each quota, which is numbered if it is one of
/// several.
pub(super) fn scopes<A: InLua>(prefix: &str, name: &str) -> Vec<String> {
    let parts = A::parts();
    let scope = |(place, part): (usize, &Part)| {
        let mut scope = format!("{prefix}:");
        push_safe(&mut scope, name);
        scope.push(':');
        if parts.len() > 1 {
            write!(scope, "{}", place + 1).expect("a string takes all");
        }
        scope.extend([part.tag, ":"]);
        scope
    };
    parts.iter().enumerate().map(scope).collect()
}

/// `key` in braces, as its names end.
pub(super) fn braced(key: &str) -> String {
    let mut name = String::with_capacity(key.len().min(LONGEST) + 2);
    name.push('{');
    push_safe(&mut name, key);
    name.push('}');
    name
}

/// The ends of names that stand in one text, each in braces of its own.
pub(super) fn ends(braced: &str) -> impl Iterator<Item = &str> {
    braced.split_inclusive('}')
}

/// The hash slot of a cluster that holds the key of this name: by what stands in its first braces.
pub(super) fn slot(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(name);
    // CRC-16 as XMODEM computes it.
    let sum = hashed.bytes().fold(0u16, |sum, byte| {
        (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| match sum >> 15 {
            0 => sum << 1,
            _ => sum << 1 ^ 0x1021,
        })
    });
    sum % SLOTS
}

/// Appends `text` verbatim if it is short and harmless, else its digest.
fn push_safe(name: &mut String, text: &str) {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"._~@:/-".contains(&byte);
    if text.len() <= LONGEST && !text.starts_with("h:") && text.bytes().all(harmless) {
        name.push_str(text);
        return;
    }
    name.push_str("h:");
    for byte in &Sha256::digest(text.as_bytes())[..16] {
        write!(name, "{byte:02x}").expect("a string takes all");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::algorithm::TokenBucket;

    #[test]
    fn harmless_keys_stay_readable() {
        assert_eq!(scopes::<TokenBucket>("sluice", "api"), ["sluice:api:tb1:"]);
        let pair = scopes::<(TokenBucket, TokenBucket)>("sluice", "api");
        assert_eq!(pair, ["sluice:api:1tb1:", "sluice:api:2tb1:"]);
        assert_eq!(braced("user-42@example.org"), "{user-42@example.org}");
    }

    #[test]
    fn everything_else_is_digested() {
        let long = "x".repeat(65);
        for key in ["{victim}", "}x", "a}b", "{}", "\0", "é", "a b", "h:00", "\r\n$3\r\nfoo", &long]
        {
            let name = braced(key);
            assert_eq!(name.len(), "{h:}".len() + 32, "{key:?}");
            assert_eq!(name.matches(['{', '}']).count(), 2, "{key:?}");
        }
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        // As CLUSTER KEYSLOT tells them.
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(slot("sluice:api:tb1:{foo}"), 12_182);
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn limiter_and_key_never_run_into_each_other() {
        let mut texts = vec![String::new()];
        for _ in 0..3 {
            let longer = |text: &String| ["{", ":", "a"].map(|more| format!("{text}{more}"));
            texts.extend(texts.iter().flat_map(longer).collect::<Vec<_>>());
        }
        let texts: HashSet<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        let mut names = HashSet::new();
        for limiter in &texts {
            for key in &texts {
                assert!(
                    names.insert(scopes::<TokenBucket>("sluice", limiter).remove(0) + &braced(key)),
                    "{limiter} {key}"
                );
            }
        }
    }
}
