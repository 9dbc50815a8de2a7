//! Digests of keys: long keys and secrets are stored as digests.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The longest text that is kept verbatim, in bytes.
const MAX_VERBATIM_LENGTH: usize = 64;

/// The prefix of digests. No text that is kept verbatim starts with it.
const DIGEST_PREFIX: &str = "h:";

/// Returns the prefix and the first half of the SHA-256 digest of `text`, in hexadecimal digits.
pub(crate) fn digest_of(text: &str) -> String {
    let mut name = DIGEST_PREFIX.to_owned();
    push_half(&mut name, &Sha256::digest(text.as_bytes()));
    name
}

/// The first 8 bytes of the SHA-256 digest of a key. They do not reveal the key.
pub(crate) fn partition_key(key: &str) -> [u8; 8] {
    let digest = Sha256::digest(key.as_bytes());
    std::array::from_fn(|index| digest[index])
}

/// Returns `key` itself if it is short, else its digest. Two different keys never have the same
/// name.
pub(crate) fn short(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_VERBATIM_LENGTH && !key.starts_with(DIGEST_PREFIX) {
        return Cow::Borrowed(key);
    }
    Cow::Owned(digest_of(key))
}

/// The digest that turns secrets into keys: 32 hexadecimal digits, the first half of SHA-256.
#[derive(Clone)]
pub(crate) enum SecretDigest {
    Sha256,
    /// HMAC-SHA-256 with a secret of the application.
    Hmac(Hmac<Sha256>),
}

impl SecretDigest {
    pub(crate) fn with_secret(secret: &[u8]) -> Self {
        Self::Hmac(Hmac::new_from_slice(secret).expect("it takes a key of any length"))
    }

    pub(crate) fn of(&self, text: &[u8]) -> String {
        let mut key = String::with_capacity(32);
        match self {
            SecretDigest::Sha256 => push_half(&mut key, &Sha256::digest(text)),
            SecretDigest::Hmac(hmac) => {
                push_half(&mut key, &hmac.clone().chain_update(text).finalize().into_bytes());
            }
        }
        key
    }
}

fn push_half(name: &mut String, digest: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    for byte in &digest[..16] {
        name.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}

#[cfg(test)]
mod tests;
