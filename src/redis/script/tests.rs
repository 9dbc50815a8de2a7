use super::*;

// Cases 76, 78 and 79.
#[test]
fn joined_suffixes_are_parted_again() {
    let parted = |joined, quotas| key_suffixes(joined, quotas).collect::<Vec<_>>();
    assert_eq!(parted("{a}{b}{a}", 3), ["{a}", "{b}", "{a}"]);
    assert_eq!(parted("{7}:a{8}:b", 2), ["{7}:a", "{8}:b"]);
    assert_eq!(parted("{a}", 2), ["{a}"]);
    assert_eq!(parted("{a}{b}", 1), ["{a}{b}"]);
}
