//! Fuzzed functions, over bytes from a server, a request or an operator. Each asserts a property
//! for all bytes.
//!
//! `cargo fuzz` runs them from `fuzz/`, and the tests below from seeds, in every check.

#![cfg_attr(not(fuzzing), allow(unreachable_pub, reason = "they are public where they are fuzzed"))]

use std::time::Duration;

use redis::Value;
use redis_once::ErrorKind as ClientErrorKind;
use redis_once::calls::{from_error_reply, hash_slot, is_read_only};

use super::Pool;
use super::key_names::{hash_tagged, key_prefixes};
use super::script::{BatchReply, Op, ReadEntry, ReplyEntry, ReplyForm, Request};
use crate::algorithm::*;
use crate::core::Quota;
use crate::core::charge::KeepFree;
use crate::limiter::configured::ConfiguredAlgorithm;

const MAX_WAIT: i64 = 500_000;

/// Reads the bytes as a reply to calls of one and of three charges, for each algorithm.
pub fn reply(bytes: &[u8]) {
    let value = Value::BulkString(bytes.to_vec());
    for (form, _, reader) in readers() {
        for charges in [1, 3] {
            let Ok(batch) = BatchReply::read(&value, charges, form) else { continue };
            let _ = batch.texts().any(|text| is_read_only(&text));
            for request in requests() {
                for position in 0..charges {
                    read(&batch, position, &request, &*reader);
                }
            }
        }
    }
}

/// Reads an entry. No wait is longer than requested, and no error fails open.
fn read(batch: &BatchReply<'_>, position: usize, request: &Request, reader: &dyn ReadEntry) {
    match (
        batch.entry(position, request, reader, |text| from_error_reply(text, []).into()),
        &request.op,
    ) {
        (Ok(ReplyEntry::Decided(answer)), Op::Check { .. } | Op::Estimate { .. }) => {
            match answer.verdict {
                Verdict::Wait(wait) => assert!((0..=MAX_WAIT).contains(&wait), "{answer:?}"),
                Verdict::Deny(wait) => assert!(wait >= 0, "{answer:?}"),
                Verdict::Allow | Verdict::Never => {}
            }
        }
        (Ok(ReplyEntry::Settled { units }), Op::Refund { units: asked, .. }) => {
            assert!(((*asked).min(0)..=(*asked).max(0)).contains(&units));
        }
        (Ok(entry), Op::Penalize { cost, .. }) => {
            assert!((-cost..=0).contains(&entry.settled()));
        }
        (Ok(_), _) => {}
        // The text of an error may come from the reply, and its code decides the kind.
        (Err(error), _) => assert!(error.to_string().len() <= 512, "{error}"),
    }
}

/// Reads the bytes as a key, and as the text of a server's error. No word of the key is shown.
pub fn error(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (text, key) = text.rsplit_once('\n').unwrap_or((&text, ""));
    let error = from_error_reply(text, [key]);
    let shown = error.to_string();
    let reply = shown.strip_prefix("redis answered: ").expect("the words of a server");
    let (code, reply) = reply.split_once(' ').unwrap_or((reply, ""));
    let words = key.split(|char: char| !char.is_alphanumeric() && !"._~@:/-".contains(char));
    for word in words.map(|word| word.trim_matches(['.', ':', '-'])).filter(|word| word.len() > 3) {
        let word = word.to_lowercase();
        assert!(!reply.to_lowercase().contains(&word), "{key:?} {shown:?}");
        assert_ne!(code.to_lowercase(), word);
    }
    assert!(shown.len() <= 512 && !shown.contains(['\r', '\n']), "{shown:?}");
    assert!(error.kind() != ClientErrorKind::Saturation);
}

/// Reads the bytes as elements of states, for each algorithm: numbers of 8 bytes, and texts.
pub fn state(bytes: &[u8]) {
    let elements: Vec<Element<'_>> = bytes
        .chunks(9)
        .map(|chunk| match chunk.split_first() {
            Some((kind, number)) if kind % 4 != 0 && number.len() == 8 => {
                let number = number.iter().fold(0, |number, byte| number << 8 | i64::from(*byte));
                // In the range of numbers that replies have.
                Element::Number(number % (INEXACT + 1))
            }
            _ => Element::Text(chunk),
        })
        .collect();
    for (_, count, reader) in readers() {
        let Some((now, rest)) = elements.split_first() else { return };
        let Element::Number(now @ 0..) = *now else { return };
        let (Some(Element::Number(wait)), Some(state)) = (rest.first(), rest.get(1..=count)) else {
            continue;
        };
        for request in requests() {
            let _ = reader.read(now.min(LATEST), &request, *wait, &[], state);
            let _ = reader.read_short(now.min(LATEST), &request, *wait);
        }
    }
}

/// Takes the bytes as two keys, and as a prefix, a name and a key. Different keys never share a
/// name in Redis.
pub fn key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (one, other) = text.split_once('\n').unwrap_or((&text, ""));
    let [tagged, other_tagged] = [one, other].map(hash_tagged);
    assert_eq!(one == other, tagged == other_tagged, "{one:?} {other:?}");
    let inside = &tagged[1..tagged.len() - 1];
    assert!(!inside.contains(['{', '}']) && tagged.len() <= 128, "{tagged}");
    if one.is_empty() || other.is_empty() {
        return;
    }
    // Even a caller that could choose the prefix and the name could not choose the slot.
    let parts = TokenBucket::new(Quota::per_second(5)).parts();
    let prefixes = key_prefixes(&parts, one, other);
    assert!(!prefixes[0].contains(['{', '}']), "{prefixes:?}");
    let name = format!("{}{tagged}", prefixes[0]);
    if !inside.is_empty() {
        assert_eq!(hash_slot(&name), hash_slot(&tagged), "{name}");
    }
    let swapped = key_prefixes(&parts, other, one);
    assert_eq!(prefixes == swapped, one == other, "{prefixes:?}");
}

/// Reads the bytes as an address. Errors never show a password.
pub fn address(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let secret = "hidden4711";
    for address in [text.clone().into_owned(), format!("redis://:{secret}@{text}")] {
        match Pool::builder(&address) {
            Ok(_) => {}
            Err(error) => assert!(!format!("{error:?} {error}").contains(secret), "{error:?}"),
        }
    }
}

fn requests() -> Vec<Request> {
    let request = |op| Request {
        key: String::from("{k}"),
        quota: None,
        rule: None,
        keep_free: KeepFree::default(),
        op,
    };
    let mark = Mark::default();
    vec![
        request(Op::Check { cost: 1, max_wait: MAX_WAIT }),
        request(Op::Check { cost: 0, max_wait: 0 }),
        request(Op::Estimate { cost: 3, max_wait: MAX_WAIT }),
        request(Op::Refund { units: 2, cost: 3, mark: mark.clone() }),
        request(Op::Refund { units: -2, cost: 3, mark }),
        request(Op::Penalize { cost: 7, births: None }),
        request(Op::Grant { cost: 7 }),
        request(Op::Reset),
        request(Op::Block { time: 7 }),
        request(Op::Unblock),
    ]
}

/// Returns a reader for each algorithm, the form of its replies, and the number of elements of a
/// state.
fn readers() -> Vec<(ReplyForm, usize, Box<dyn ReadEntry>)> {
    fn reader<A: InLua>(algorithm: A) -> (ReplyForm, usize, Box<dyn ReadEntry>) {
        let parts = algorithm.parts();
        let elements = parts.iter().map(ScriptPart::state_elements).sum();
        let reader = ConfiguredAlgorithm::new("fuzz".into(), algorithm);
        (ReplyForm::of(&parts), elements, Box::new(reader.expect("a quota that it follows")))
    }
    let quota = || Quota::new(7, Duration::from_micros(1_000));
    let slow = || Quota::per_minute(3);
    let pair = (TokenBucket::new(quota()), FixedWindow::new(slow())).into_algorithm();
    let others = [
        reader(TokenBucket::new(quota().burst(5))),
        reader(FixedWindow::new(slow()).anchored()),
        reader(pair),
    ];
    AnyAlgorithm::one_of_each(slow()).map(reader).into_iter().chain(others).collect()
}

/// Tests of the fuzzed functions from seeds: the same inputs in every check, and more on demand.
#[cfg(test)]
mod tests {
    use super::*;

    /// Real inputs from a server, a request and an operator.
    const SEEDS: [&[u8]; 13] = [
    b"\x93\xcd\x02\x58\xd0\x9b\xcd\x04\x4d",
    b"\xdc\x00\x04\xcf\x00\x06\x48\xc7\x6d\x3a\x35\x00\xff\xcd\x04\x4d\x00",
    b"\x94\xcd\x02\x58\xa6OOM no\x00\x00",
    b"\x96\x64\x00\x01\xa7,5,0,1,\x00\x00",
    b"\x97\x64\x00\x01\x02\x03\x04\x05",
    b"\xda\x01\x00",
    b"ERR Error running script (call to f_abc): @user_script:265: -READONLY You can't write\r\n",
    b"ERR value 'sk_live_1' of sk_live_1: no, with args beginning with: 'sk_live_1'\nuser:sk_live_1",
    b"NOPERM this user has no permissions to access one of the keys used as arguments",
    b"redis-cluster://user:secret@[::1]:7000?node=localhost:7001&node=10.0.0.1:7002",
    b"rediss-sentinel://h:26379/3?sentinelServiceName=main&node=other:26380#insecure",
    b"user-42\n{victim}}{\0",
    b"prod:eu\napi%7B",
];

    /// Makes an input from a seed: some bytes are changed, cut, doubled or added.
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
}
