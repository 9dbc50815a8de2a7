//! Functions to fuzz, over bytes that a server, a request or an operator chose. Each asserts a
//! promise that holds for all bytes.
//!
//! `cargo fuzz` runs them from `fuzz/`, and the tests below from seeds, in every check.

#![cfg_attr(not(fuzzing), allow(unreachable_pub, reason = "they are public where they are fuzzed"))]

use std::time::Duration;

use redis::Value;

use super::client::error::{from_error_reply, is_read_only};
use super::client::{Address, hash_slot};
use super::key::{hash_tagged, key_prefixes};
use super::script::{BatchReply, Op, ReadEntry, ReplyEntry, Request};
use crate::algorithm::*;
use crate::limiter::named::NamedAlgorithm;
use crate::{ErrorKind, Quota};

const MAX_WAIT: i64 = 500_000;

/// Reads the bytes as a reply to calls of one and of three charges, for each algorithm.
pub fn reply(bytes: &[u8]) {
    let value = Value::BulkString(bytes.to_vec());
    for reader in readers() {
        for charges in [1, 3] {
            let Ok(batch) = BatchReply::read(&value, charges, reader.state_elements()) else {
                continue;
            };
            let _ = batch.texts().any(|text| is_read_only(&text));
            for request in requests() {
                for position in 0..charges {
                    read(&batch, position, &request, &*reader);
                }
            }
        }
    }
}

/// Reads an entry. No wait is longer than it was asked for, and no error fails open.
fn read(batch: &BatchReply<'_>, position: usize, request: &Request, reader: &dyn ReadEntry) {
    match (batch.entry(position, request, reader, from_error_reply), &request.op) {
        (Ok(ReplyEntry::Decided(answer)), Op::Check { .. } | Op::Estimate { .. }) => {
            match answer.verdict {
                Verdict::Wait(wait) => assert!((0..=MAX_WAIT).contains(&wait), "{answer:?}"),
                Verdict::Deny(wait) => assert!(wait >= 0, "{answer:?}"),
                Verdict::Allow | Verdict::Never => {}
            }
        }
        (Ok(ReplyEntry::Refunded { units }), Op::Refund { units: asked, .. }) => {
            assert!((0..=(*asked).max(0)).contains(&units));
        }
        (Ok(_), _) => {}
        // The text of an error may come from the reply, and its code decides the kind.
        (Err(error), _) => assert!(error.to_string().len() <= 512, "{error}"),
    }
}

/// Reads the bytes as the text of an error that a server sent.
pub fn error(bytes: &[u8]) {
    let error = from_error_reply(&String::from_utf8_lossy(bytes));
    let shown = error.to_string();
    assert!(shown.len() <= 512 && !shown.contains(['\r', '\n']), "{shown:?}");
    assert!(error.kind() != ErrorKind::Request && error.kind() != ErrorKind::Saturation);
}

/// Reads the bytes as elements of states, for each algorithm: numbers of 8 bytes, and texts.
pub fn state(bytes: &[u8]) {
    let elements: Vec<Element<'_>> = bytes
        .chunks(9)
        .map(|chunk| match chunk.split_first() {
            Some((kind, number)) if kind % 4 != 0 && number.len() == 8 => {
                let number = number.iter().fold(0, |number, byte| number << 8 | i64::from(*byte));
                // In the range that the reader of replies passes on.
                Element::Number(number % (INEXACT + 1))
            }
            _ => Element::Text(chunk),
        })
        .collect();
    for reader in readers() {
        let count = reader.state_elements();
        let Some((now, rest)) = elements.split_first() else { return };
        let Element::Number(now @ 0..) = *now else { return };
        let (Some(Element::Number(wait)), Some(state)) = (rest.first(), rest.get(1..=count)) else {
            continue;
        };
        for request in requests() {
            let _ = reader.read(now.min(LATEST), &request, *wait, state);
        }
    }
}

/// Takes the bytes as two keys, and as a prefix, a name and a key. Different ones never share a
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
    // Even a caller that chose the prefix and the name could not choose the slot.
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

/// Reads the bytes as an address. An error never repeats a password.
pub fn address(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let secret = "hidden4711";
    for address in [text.clone().into_owned(), format!("redis://:{secret}@{text}")] {
        match Address::parse(&address) {
            Ok(_) => {}
            Err(error) => assert!(!format!("{error:?} {error}").contains(secret), "{error:?}"),
        }
    }
}

fn requests() -> Vec<Request> {
    let request = |op| Request { key: String::from("{k}"), quota: None, rule: None, op };
    let mark = Mark::default();
    vec![
        request(Op::Check { cost: 1, max_wait: MAX_WAIT }),
        request(Op::Check { cost: 0, max_wait: 0 }),
        request(Op::Estimate { cost: 3, max_wait: MAX_WAIT }),
        request(Op::Refund { units: 2, cost: 3, mark: mark.clone() }),
        request(Op::Refund { units: -2, cost: 3, mark }),
        request(Op::Penalize { cost: 7 }),
        request(Op::Reset),
        request(Op::Block { time: 7 }),
        request(Op::Unblock),
    ]
}

fn readers() -> Vec<Box<dyn ReadEntry>> {
    fn reader<A: InLua>(algorithm: A) -> Box<dyn ReadEntry> {
        Box::new(NamedAlgorithm::new("fuzz".into(), algorithm).expect("a quota that it follows"))
    }
    let quota = || Quota::new(7, Duration::from_micros(1_000));
    let slow = || Quota::per_minute(3);
    vec![
        reader(TokenBucket::new(quota().burst(5))),
        reader(Budget::new(quota().burst(5))),
        reader(FixedWindow::new(quota())),
        reader(FixedWindow::new(slow()).anchored()),
        reader(SlidingLog::new(quota())),
        reader(SlidingWindow::new(slow())),
        reader(SlidingCounter::new(slow())),
        reader(SmoothBursty::new(slow())),
        reader(SmoothWarmingUp::new(slow(), Duration::from_secs(10))),
        reader((TokenBucket::new(quota()), FixedWindow::new(slow()))),
    ]
}

#[cfg(test)]
mod tests;
