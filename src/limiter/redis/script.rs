//! A limiter's script: put together once, called by its digest, and its reply read with suspicion.
//!
//! The contract between both sides is `scripts/README.md`.

use redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;

use super::failure;
use crate::algorithm::{Algorithm, LATEST, Report, Verdict};
use crate::{Class, Error};

const HEAD: &str = include_str!("../../../scripts/head.lua");
const TAIL: &str = include_str!("../../../scripts/tail.lua");

/// The numbers that answer one charge.
const WIDTH: usize = 6;

/// No wait, count or state is larger: what a Lua number holds exactly.
const LARGEST: i64 = 1 << 53;

/// A text that Redis runs, and the digest that it is called by.
#[derive(Clone, Debug)]
pub(super) struct Script {
    text: String,
    digest: String,
}

/// What is asked about one key.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Check { cost: i64, patience: i64 },
    Refund { cost: i64, left: [i64; 2] },
}

/// One charge of a call.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) key: String,
    /// The numbers of a quota of its own.
    pub(super) rule: Option<Vec<i64>>,
    pub(super) op: Op,
}

/// What a script says of one charge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Decided { verdict: Verdict, report: Report, left: [i64; 2] },
    Refunded { units: i64 },
}

impl Script {
    pub(super) fn of<A: Algorithm>() -> Self {
        let text = format!("{HEAD}\n{}\n{TAIL}\nreturn run({})\n", A::SCRIPT, A::NAME);
        let digest = Sha1::from(&text).digest().to_string();
        Self { text, digest }
    }

    /// A call by digest.
    pub(super) fn by_digest(&self, now: Option<i64>, rule: &[i64], lines: &[Line]) -> Cmd {
        Self::call(cmd("EVALSHA").arg(&self.digest), now, rule, lines)
    }

    /// A call by text, which the server keeps.
    pub(super) fn by_text(&self, now: Option<i64>, rule: &[i64], lines: &[Line]) -> Cmd {
        Self::call(cmd("EVAL").arg(&self.text), now, rule, lines)
    }

    fn call(call: &mut Cmd, now: Option<i64>, rule: &[i64], lines: &[Line]) -> Cmd {
        call.arg(lines.len());
        for line in lines {
            call.arg(&line.key);
        }
        match now {
            Some(now) => call.arg(now),
            None => call.arg(""),
        };
        call.arg(rule);
        for line in lines {
            if let Some(rule) = &line.rule {
                call.arg("quota").arg(rule);
            }
            match line.op {
                Op::Check { cost, patience } => call.arg(cost).arg(patience),
                Op::Refund { cost, left } => call.arg("refund").arg(cost).arg(&left),
            };
        }
        call.take()
    }
}

/// Reads a reply: the instant it was decided at, and what it says of each charge.
///
/// # Errors
///
/// If it has another shape than the script gives it.
pub(super) fn read(
    reply: &Value,
    lines: &[Line],
) -> Result<(i64, Vec<Result<Told, Error>>), Error> {
    let Value::Array(elements) = reply else { return Err(odd()) };
    let Some((Value::Int(now @ 0..=LATEST), told)) = elements.split_first() else {
        return Err(odd());
    };
    if told.len() != lines.len() * WIDTH {
        return Err(odd());
    }
    let told = told.chunks_exact(WIDTH).zip(lines).map(|(told, line)| read_told(told, line));
    Ok((*now, told.collect()))
}

/// Reads the reply to a call of one charge.
pub(super) fn read_one(reply: &Value, line: &Line) -> Result<(i64, Told), Error> {
    let (now, told) = read(reply, std::slice::from_ref(line))?;
    let told = told.into_iter().next().ok_or_else(odd)?;
    Ok((now, told?))
}

fn read_told(told: &[Value], line: &Line) -> Result<Told, Error> {
    if let Value::BulkString(text) = &told[0] {
        return Err(failure::reply(&String::from_utf8_lossy(text)));
    }
    let mut numbers = [0; WIDTH];
    for (number, value) in numbers.iter_mut().zip(told) {
        match value {
            Value::Int(value @ 0..=LARGEST) => *number = *value,
            _ => return Err(odd()),
        }
    }
    let [outcome, wait, remaining, reset_after, left, left_too] = numbers;
    let decided = |verdict| Told::Decided {
        verdict,
        report: Report { remaining, reset_after },
        left: [left, left_too],
    };
    match (outcome, &line.op) {
        (0, Op::Check { .. }) if wait == 0 => Ok(decided(Verdict::Allow)),
        (1, Op::Check { patience, .. }) if (1..=*patience).contains(&wait) => {
            Ok(decided(Verdict::Wait(wait)))
        }
        (2, Op::Check { .. }) if wait > 0 => Ok(decided(Verdict::Deny(wait))),
        (3, Op::Check { .. }) => Ok(decided(Verdict::Never)),
        (5, Op::Refund { cost, .. }) if wait <= *cost => Ok(Told::Refunded { units: wait }),
        _ => Err(odd()),
    }
}

pub(super) fn odd() -> Error {
    Error::new(Class::State, "the reply is not one that the script gives")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(op: Op) -> Line {
        Line { key: String::from("k"), rule: None, op }
    }

    fn check() -> Line {
        line(Op::Check { cost: 1, patience: 500 })
    }

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn a_booked_wait_is_read() {
        let (now, told) = read(&ints(&[7, 1, 400, 0, 900, 11, 12]), &[check()]).unwrap();
        assert_eq!(now, 7);
        let report = Report { remaining: 0, reset_after: 900 };
        let decided = Told::Decided { verdict: Verdict::Wait(400), report, left: [11, 12] };
        assert_eq!(told.into_iter().next().unwrap().unwrap(), decided);
    }

    #[test]
    fn odd_replies_are_errors() {
        let odd = [
            Value::Nil,
            Value::Okay,
            Value::Double(1.0),
            Value::Boolean(true),
            ints(&[]),
            ints(&[7]),
            ints(&[7, 0, 0, 0, 0, 0]),
            ints(&[7, 0, 0, 0, 0, 0, 0, 0]),
            ints(&[-1, 0, 0, 0, 0, 0, 0]),
            ints(&[i64::MIN, 0, 0, 0, 0, 0, 0]),
        ];
        for reply in odd {
            assert_eq!(read(&reply, &[check()]).unwrap_err().class(), Class::State, "{reply:?}");
        }
        let odd = [
            [0, 1, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0],
            [1, 501, 0, 0, 0, 0],
            [1, i64::MIN, 0, 0, 0, 0],
            [2, 0, 0, 0, 0, 0],
            [4, 1, 0, 0, 0, 0],
            [5, 0, 0, 0, 0, 0],
            [0, 0, -1, 0, 0, 0],
            [0, 0, 0, i64::MAX, 0, 0],
        ];
        for told in odd {
            let reply = [&[7], told.as_slice()].concat();
            let (_, told) = read(&ints(&reply), &[check()]).unwrap();
            assert!(told[0].is_err(), "{reply:?}");
        }
    }

    #[test]
    fn one_charge_fails_alone() {
        let mut reply = vec![Value::Int(7), Value::BulkString(b"OOM no".to_vec())];
        reply.extend([0, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7].map(Value::Int));
        let (_, told) = read(&Value::Array(reply), &[check(), check()]).unwrap();
        assert_eq!(told[0].as_ref().unwrap_err().class(), Class::Capacity);
        assert!(told[1].is_ok());
    }

    proptest! {
        #[test]
        fn no_reply_admits_beyond_patience(numbers in prop::collection::vec(any::<i64>(), 0..9)) {
            if let Ok((_, told)) = read(&ints(&numbers), &[check()])
                && let Ok(Told::Decided { verdict: Verdict::Wait(wait), .. }) = told[0] {
                    prop_assert!((1..=500).contains(&wait));
                }
        }
    }
}
