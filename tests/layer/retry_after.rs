//! No bytes of an upstream make a client wait longer than it believes, and none make it fail.

use support::retry_after::{FIELDS, retry_after};

const SEEDS: [&str; 15] = [
    "\x003",
    "\x00Sun, 06 Nov 1994 08:49:37 GMT\n\x01Sun, 06 Nov 1994 08:49:30 GMT",
    "\x00Sunday, 06-Nov-94 08:49:37 GMT",
    "\x00Sun Nov  6 08:49:37 1994",
    "\x00253402300799\n\x00-1\n\x00NaN",
    "\x02\"a\";r=0;t=13, \"b;t=\\\"9\";r=1;t=18446744073709551616",
    "\x02limit=100, remaining=0, reset=13",
    "\x030\n\x0413",
    "\x050\n\x061767225613",
    "\x061767225613000.5\n\x01Thu, 01 Jan 2026 00:00:00 GMT",
    "\x0618446744073709551615",
    "\x07CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIHCgUQgOWadw",
    "\x07GjMKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SBwoFEIDlmnc=\n\x08-1",
    "\x0920000.5\n\x00soon",
    "\x082147483647\n\x08soon",
];

#[test]
fn no_bytes_of_an_upstream_ask_for_more_than_is_believed() {
    let mut dice = fastrand::Rng::with_seed(0x5EED);
    let inputs = std::env::var("FUZZ_INPUTS").map_or(4_000, |n| n.parse().expect("a number"));
    for _ in 0..inputs {
        let mut bytes = super::forwarded::mutated(&SEEDS, &mut dice);
        bytes.push(b'\n');
        bytes.extend(super::forwarded::mutated(&SEEDS, &mut dice));
        if std::panic::catch_unwind(|| retry_after(&bytes)).is_err() {
            panic!("failed by {}", bytes.escape_ascii());
        }
    }
    assert!(SEEDS.iter().all(|seed| usize::from(seed.as_bytes()[0]) < FIELDS.len()));
}
