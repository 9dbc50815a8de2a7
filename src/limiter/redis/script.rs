//! A limiter's script: put together once, and called by its digest.
//!
//! The contract between both sides is `scripts/README.md`; the reply is read in `reply.rs`.

use redis::{Cmd, cmd};
use sha1_smol::Sha1;

use crate::algorithm::{Algorithm, Left};

const HEAD: &str = include_str!("../../../scripts/head.lua");
const TAIL: &str = include_str!("../../../scripts/tail.lua");

/// A text that Redis runs, and the digest that it is called by.
#[derive(Clone, Debug)]
pub(super) struct Script {
    text: String,
    digest: String,
}

/// What is asked about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Check { cost: i64, patience: i64 },
    Refund { cost: i64, left: Left },
    Penalize { cost: i64 },
    Reset,
}

/// One charge of a call.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) key: String,
    /// The numbers of a quota of its own.
    pub(super) rule: Option<Vec<i64>>,
    pub(super) op: Op,
}

impl Line {
    fn asks_like(&self, other: &Line) -> bool {
        self.op == other.op && self.rule == other.rule
    }
}

impl Script {
    pub(super) fn of<A: Algorithm>() -> Self {
        let text = format!("{HEAD}\n{}\n{TAIL}\nreturn run({})\n", A::SCRIPT, A::NAME);
        let digest = Sha1::from(&text).digest().to_string();
        Self { text, digest }
    }

    /// A call by digest.
    pub(super) fn by_digest(&self, now: Option<i64>, rule: &[i64], lines: &[&Line]) -> Cmd {
        Self::call(cmd("EVALSHA").arg(&self.digest), now, rule, lines)
    }

    /// A call by text, which the server keeps.
    pub(super) fn by_text(&self, now: Option<i64>, rule: &[i64], lines: &[&Line]) -> Cmd {
        Self::call(cmd("EVAL").arg(&self.text), now, rule, lines)
    }

    fn call(call: &mut Cmd, now: Option<i64>, rule: &[i64], lines: &[&Line]) -> Cmd {
        call.arg(lines.len());
        for line in lines {
            call.arg(&line.key);
        }
        match now {
            Some(now) => call.arg(now),
            None => call.arg(""),
        };
        call.arg(rule);
        for run in lines.chunk_by(|one, next| one.asks_like(next)) {
            call.arg(run.len());
            if let Some(rule) = &run[0].rule {
                call.arg("quota").arg(rule);
            }
            match run[0].op {
                Op::Check { cost, patience } => call.arg(cost).arg(patience),
                Op::Refund { cost, left } => call.arg("refund").arg(cost).arg(&left),
                Op::Penalize { cost } => call.arg("penalize").arg(cost),
                Op::Reset => call.arg("reset"),
            };
        }
        call.take()
    }
}
