use super::*;

#[test]
fn a_partition_key_is_the_start_of_the_digest() {
    assert_eq!(partition_key("user:42"), [0xea, 0x3f, 0xd4, 0x3b, 0xe1, 0xe5, 0x7d, 0x62]);
}

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

/// The expected digits come from `printf %s alice | sha256sum` and
/// `openssl dgst -sha256 -hmac pepper`.
#[test]
fn secrets_become_the_digits_that_other_tools_print() {
    assert_eq!(SecretDigest::Sha256.of(b"alice"), "2bd806c97f0e00af1a1fc3328fa763a9");
    let hmac = SecretDigest::with_secret(b"pepper");
    assert_eq!(hmac.of(b"alice"), "f2f95d059a71b4aa6d3eefe385a6b0db");
    assert_eq!(hmac.of(b"alice"), hmac.clone().of(b"alice"));
}
