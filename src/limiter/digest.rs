//! Short names for keys: a long key is stored as its digest.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The longest text that is kept verbatim, in bytes.
pub(super) const MAX_VERBATIM_LENGTH: usize = 64;

/// Digests start with this, and no text that is kept verbatim does.
pub(super) const DIGEST_PREFIX: &str = "h:";

/// Appends the prefix and the first half of the SHA-256 digest of `text`, in hexadecimal digits.
pub(super) fn push_digest(name: &mut String, text: &str) {
    name.push_str(DIGEST_PREFIX);
    for byte in &Sha256::digest(text.as_bytes())[..16] {
        write!(name, "{byte:02x}").expect("a string takes all");
    }
}

/// `key` itself if it is short, else its digest. Two different keys never share a name.
pub(super) fn short(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_VERBATIM_LENGTH && !key.starts_with(DIGEST_PREFIX) {
        return Cow::Borrowed(key);
    }
    let mut name = String::new();
    push_digest(&mut name, key);
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case 79.
    #[test]
    fn short_keys_stay_and_no_key_takes_the_name_of_another() {
        let long = "x".repeat(65);
        let digest = short(&long);
        assert_eq!((short("user 42"), digest.len()), ("user 42".into(), "h:".len() + 32));
        assert_ne!(short(&digest), digest);
        assert_ne!(short(&"x".repeat(66)), digest);
        assert_eq!(short(&long[1..]), long[1..]);
    }
}
