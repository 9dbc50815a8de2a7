//! The fuzzed functions from seeds: the same inputs in every check, and more on demand.

use super::*;

/// Real inputs from a server, a request and an operator.
const SEEDS: [&[u8]; 12] = [
    b"\x93\xcd\x02\x58\xd0\x9b\xcd\x04\x4d",
    b"\xdc\x00\x04\xcf\x00\x06\x48\xc7\x6d\x3a\x35\x00\xff\xcd\x04\x4d\x00",
    b"\x94\xcd\x02\x58\xa6OOM no\x00\x00",
    b"\x96\x64\x00\x01\xa7,5,0,1,\x00\x00",
    b"\x97\x64\x00\x01\x02\x03\x04\x05",
    b"\xda\x01\x00",
    b"ERR Error running script (call to f_abc): @user_script:265: -READONLY You can't write\r\n",
    b"NOPERM this user has no permissions to access one of the keys used as arguments",
    b"redis-cluster://user:secret@[::1]:7000?node=localhost:7001&node=10.0.0.1:7002",
    b"rediss-sentinel://h:26379/3?sentinelServiceName=main&node=other:26380#insecure",
    b"user-42\n{victim}}{\0",
    b"prod:eu\napi%7B",
];

/// A seed with some bytes changed, cut, doubled or added.
fn mutated(dice: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = SEEDS[dice.usize(..SEEDS.len())].to_vec();
    for _ in 0..dice.usize(..6) {
        let at = dice.usize(..=bytes.len());
        match dice.u8(..5) {
            0 => bytes.insert(at, dice.u8(..)),
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
    bytes.truncate(512);
    bytes
}

fn run(case: u32, target: fn(&[u8]), inputs: u64) {
    let mut dice = fastrand::Rng::with_seed(0x5EED);
    let inputs = std::env::var("FUZZ_INPUTS").map_or(inputs, |n| n.parse().expect("a number"));
    for _ in 0..inputs {
        let bytes = mutated(&mut dice);
        if std::panic::catch_unwind(|| target(&bytes)).is_err() {
            panic!("failed by {}", bytes.escape_ascii());
        }
    }
    println!("fault case={case} inputs={inputs} failed=0");
}

// Case 33.
#[test]
fn replies_of_any_bytes_admit_nothing_that_was_not_asked_for() {
    run(33, reply, 20_000);
}

// Case 32.
#[test]
fn error_replies_of_any_bytes_are_short_and_of_a_kind() {
    run(32, error, 50_000);
}

// Cases 53 and 64.
#[test]
fn states_of_any_numbers_are_read_or_refused() {
    run(64, state, 20_000);
}

// Cases 75, 76 and 77.
#[test]
fn keys_of_any_bytes_share_no_name_and_choose_no_slot() {
    run(75, key, 50_000);
}

// Case 126.
#[test]
fn addresses_of_any_bytes_are_read_or_refused_without_a_secret() {
    run(126, address, 20_000);
}
