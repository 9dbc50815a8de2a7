//! No bytes of a client get around what a trusted proxy says about it.

use support::forwarded::forwarded;

const SEEDS: [&str; 10] = [
    "1.2.3.4, 203.0.113.9, 10.0.0.7",
    "203.0.113.9\n10.0.0.7",
    "203.0.113.9, junk, 10.0.0.7",
    "::ffff:203.0.113.9, [2001:db8::1]:4711, fe80::1%eth0",
    ", ,,\t10.0.0.1:80,\n,",
    r#"for="[2001:db8:1:2:3::9]:4711";proto=https, for=10.0.0.7"#,
    r#"for=1.2.3.4;by=""#,
    r#"for="10.0.0.7\"#,
    r#"by="a,\"b\\";host="x;for=1.2.3.4", for=unknown, For="_hidden""#,
    "for=10.0.0.1,for=10.0.0.2,for=10.0.0.3;for=10.0.0.4",
];

/// Makes an input from a seed: some bytes are changed, cut, doubled or added, mostly to bytes
/// with a meaning.
pub(super) fn mutated(seeds: &[&str], dice: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seeds[dice.usize(..seeds.len())].as_bytes().to_vec();
    for _ in 0..dice.usize(..6) {
        let at = dice.usize(..=bytes.len());
        match dice.u8(..5) {
            0 => bytes.insert(at, *dice.choice(b"\"\\,;=: \n[]%\xff").expect("one")),
            1 => bytes.truncate(at),
            2 => bytes.extend_from_within(at..),
            3 => bytes.extend((0..dice.usize(..20)).map(|_| dice.u8(..))),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = dice.u8(..);
                }
            }
        }
    }
    bytes
}

#[test]
fn no_bytes_of_a_client_change_what_a_trusted_proxy_appends() {
    let mut dice = fastrand::Rng::with_seed(0x5EED);
    let inputs = std::env::var("FUZZ_INPUTS").map_or(4_000, |n| n.parse().expect("a number"));
    for _ in 0..inputs {
        let bytes = mutated(&SEEDS, &mut dice);
        if std::panic::catch_unwind(|| forwarded(&bytes)).is_err() {
            panic!("failed by {}", bytes.escape_ascii());
        }
    }
    // Longer than the part that is read.
    let long = SEEDS.join(",").repeat(40);
    (0..20).for_each(|cut| forwarded(&long.as_bytes()[cut..]));
}
