//! What a server's book says about charges: each call read as the contract of the scripts has it,
//! and replayed by the reference.

use std::collections::BTreeMap;

use tower_sluice::algorithm::{Algorithm, Check, Mark, Refund, TokenBucket, Verdict};

use super::book::{Event, ScriptCall};
use super::resp::Reply;

/// The rule's numbers of a token bucket in `ARGV`, and what a reply says of its state.
const ARGUMENTS: usize = 4;
const WIDTH: usize = 3;

/// A value of a packed reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packed {
    Integer(i64),
    /// Why a charge failed.
    Text(String),
    Nothing,
}

/// The values of a list that `cmsgpack` packed.
fn unpack(bytes: &[u8]) -> Vec<Packed> {
    let mut rest = bytes;
    let mut take = |size: usize| {
        let (taken, after) = rest.split_at(size);
        rest = after;
        taken.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let length = match take(1) {
        code @ 0x90..=0x9f => code - 0x90,
        0xdc => take(2),
        0xdd => take(4),
        code => panic!("no list: {code:#x}"),
    };
    let mut values = Vec::new();
    for _ in 0..length {
        values.push(match take(1) {
            code @ 0..=0x7f => Packed::Integer(code.cast_signed()),
            code @ 0xe0..=0xff => Packed::Integer(code.cast_signed() - 256),
            0xc0 => Packed::Nothing,
            0xcc => Packed::Integer(take(1).cast_signed()),
            0xcd => Packed::Integer(take(2).cast_signed()),
            0xce => Packed::Integer(take(4).cast_signed()),
            0xcf => Packed::Integer(take(8).cast_signed()),
            0xd0 => Packed::Integer(i64::from(take(1) as i8)),
            0xd1 => Packed::Integer(i64::from(take(2) as i16)),
            0xd2 => Packed::Integer(i64::from(take(4) as i32)),
            0xd3 => Packed::Integer(take(8).cast_signed()),
            code => {
                let length = match code {
                    0xa0..=0xbf => code - 0xa0,
                    0xd9 => take(1),
                    0xda => take(2),
                    _ => panic!("an odd code: {code:#x}"),
                };
                let text = (0..length).map(|_| take(1) as u8 as char).collect();
                Packed::Text(text)
            }
        });
    }
    values
}

/// What a call asked about one key, and was answered.
#[derive(Clone, Debug)]
pub struct Charge {
    pub key: String,
    pub now: i64,
    pub op: Op,
    pub wait: Packed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Check { cost: i64, max_wait: i64 },
    Settle { used: i64, cost: i64, mark: Vec<String> },
    Penalize { cost: i64 },
}

/// An admission that the server made.
#[derive(Clone, Debug)]
pub struct Admission {
    /// When it goes.
    pub at: i64,
    pub cost: i64,
    /// What is taken of it still.
    pub taken: i64,
    mark: Mark,
}

/// The charges of a call. `None`: its reply is an error.
fn charges(call: &ScriptCall) -> Option<Vec<Charge>> {
    let Reply::Text(packed) = &call.reply else { return None };
    let reply = unpack(packed);
    let Packed::Integer(now) = reply[0] else { panic!("{reply:?}") };
    let words: Vec<String> =
        call.arguments.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let keys: Vec<String> =
        call.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    let number = |at: usize| words[at].parse::<i64>().expect("a number");
    let (mut charges, mut place, mut key, mut at) = (Vec::new(), 1, 0, 1 + ARGUMENTS);
    while key < keys.len() {
        let (alike, segments) = (number(at) as usize, number(at + 1));
        at += 2;
        let begin = at;
        for key in &keys[key..key + alike] {
            at = begin;
            for _ in 0..segments {
                let repeats = number(at);
                at += 1;
                assert_ne!(words[at], "quota", "no charge brings one here");
                let (op, length) = match words[at].as_str() {
                    "refund" => {
                        let mark = words[at + 2..at + 6].to_vec();
                        (Op::Settle { used: 0, cost: number(at + 1), mark }, 6)
                    }
                    "settle" => {
                        let mark = words[at + 3..at + 7].to_vec();
                        (Op::Settle { used: number(at + 1), cost: number(at + 2), mark }, 7)
                    }
                    "penalize" => (Op::Penalize { cost: number(at + 1) }, 2),
                    _ => (Op::Check { cost: number(at), max_wait: number(at + 1) }, 2),
                };
                at += length;
                for _ in 0..repeats {
                    let (key, op, wait) = (key.clone(), op.clone(), reply[place].clone());
                    charges.push(Charge { key, now, op, wait });
                    place += WIDTH;
                }
            }
        }
        key += alike;
    }
    assert_eq!((place, at), (reply.len(), words.len()), "{call:?}");
    Some(charges)
}

/// What a server admitted, by key, each decision compared with the reference.
pub fn admissions(
    events: &[Event],
    bucket: TokenBucket,
) -> Result<BTreeMap<String, Vec<Admission>>, String> {
    let rule = bucket.rule(bucket.quota()).expect("a rule");
    let mut states: BTreeMap<String, Option<<TokenBucket as Algorithm>::State>> = BTreeMap::new();
    let mut admitted: BTreeMap<String, Vec<Admission>> = BTreeMap::new();
    for event in events {
        let call = match event {
            Event::Call(call) => call,
            Event::Crash { keeps_data: false } => {
                states.clear();
                continue;
            }
            _ => continue,
        };
        for charge in charges(call).into_iter().flatten() {
            let state = states.entry(charge.key.clone()).or_default();
            let known = admitted.entry(charge.key.clone()).or_default();
            let Packed::Integer(wait) = charge.wait else { continue };
            let now = charge.now;
            match &charge.op {
                Op::Check { cost, max_wait } => {
                    let check = Check { cost: *cost, max_wait: *max_wait };
                    let answer = TokenBucket::step(&rule, state, now, check);
                    let expected = match answer.verdict {
                        Verdict::Allow if *cost > 0 => -1,
                        Verdict::Wait(wait) => -1 - wait,
                        Verdict::Deny(wait) => wait,
                        _ => 0,
                    };
                    if wait != expected {
                        return Err(format!("{charge:?}: the reference says {expected}"));
                    }
                    if let (Some(mark), true) = (answer.mark, wait < 0) {
                        let at = now - 1 - wait;
                        known.push(Admission { at, cost: *cost, taken: *cost, mark });
                    }
                }
                Op::Settle { used, cost, mark } => {
                    let own = |one: &&mut Admission| one.mark.words() == *mark && one.cost == *cost;
                    let Some(one) = known.iter_mut().rev().find(own) else {
                        return Err(format!("{charge:?}: nothing of it was taken"));
                    };
                    let refund = Refund { units: cost - used, cost: *cost, mark: &one.mark };
                    let back = TokenBucket::refund(&rule, state, now, &refund).unwrap_or(0);
                    if wait != back {
                        return Err(format!("{charge:?}: the reference gives back {back}"));
                    }
                    one.taken -= back;
                    if one.taken < 0 {
                        return Err(format!("{charge:?}: given back twice"));
                    }
                }
                Op::Penalize { cost } => {
                    TokenBucket::penalize(&rule, state, now, *cost);
                }
            }
        }
    }
    Ok(admitted)
}

/// The admissions that break the bound: no stretch holds more than the burst and what refilled.
pub fn excess(admissions: &[Admission], pace: i64, burst: i64) -> Option<String> {
    let mut taken: Vec<&Admission> = admissions.iter().filter(|one| one.taken > 0).collect();
    taken.sort_by_key(|one| one.at);
    for (index, last) in taken.iter().enumerate() {
        let mut units = 0;
        for first in taken[..=index].iter().rev() {
            units += first.taken;
            if units > burst + (last.at - first.at) / pace {
                return Some(format!("{units} units from {first:?} to {last:?}"));
            }
        }
    }
    None
}
