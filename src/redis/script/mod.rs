//! The scripts of a limiter, which the server runs: texts, digests, and the arguments of a call.
//!
//! `assembly.rs` puts the texts together.
//! `scripts/README.md` describes the arguments and the reply, which `reply.rs` reads. Nothing here
//! sends a call.

#[cfg(test)]
mod assembled_texts;
mod assembly;
mod reply;

pub(crate) use self::assembly::{keep_text, local_names};
pub(crate) use self::reply::{BatchReply, ReadEntry, ReplyEntry, ReplyForm, malformed_reply};

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use redis::{Cmd, RedisWrite as _};
use smallvec::SmallVec;

use self::assembly::{Kind, assemble};
use crate::algorithm::{Check, InLua, Mark, ScriptPart};
use crate::core::charge::KeepFree;
use crate::core::quota::Quotas;
use redis_once::Script;

/// The scripts of a limiter.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    checks: Script,
    complete: Script,
}

/// Returns the texts of a limiter's scripts: the one for checks only, and the complete one.
pub fn texts<A: InLua>(algorithm: &A) -> [String; 2] {
    let parts = algorithm.parts();
    [Kind::Checks, Kind::Complete].map(|kind| assemble(&parts, kind))
}

impl Scripts {
    /// Returns the scripts of a limiter with these algorithms. All such limiters share the texts,
    /// since a table may have 10,000 limiters of few algorithms.
    pub(super) fn of(parts: &[ScriptPart]) -> Self {
        static KNOWN: Mutex<Vec<(Vec<ScriptPart>, Scripts)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|(own, _)| own == parts).unwrap_or_else(|| {
            let script = |kind| Script::new(assemble(parts, kind));
            let scripts = Self { checks: script(Kind::Checks), complete: script(Kind::Complete) };
            known.push((parts.to_vec(), scripts));
            known.len() - 1
        });
        let Self { checks, complete } = &known[place].1;
        Self { checks: checks.anew(), complete: complete.anew() }
    }

    /// Returns the script for a call: almost all calls have only checks.
    pub(super) fn choose<'a>(&self, mut requests: impl Iterator<Item = &'a Request>) -> &Script {
        let is_check = |request: &Request| {
            matches!(request.op, Op::Check { .. }) && request.keep_free.is_none()
        };
        if requests.all(is_check) { &self.checks } else { &self.complete }
    }
}

/// One entry of a script call.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The suffix of its keys' names: one for all quotas, or one for each, joined.
    pub(crate) key: String,
    /// The charge's own quota, and its rule in the form of the script.
    pub(crate) quota: Option<Quotas>,
    pub(crate) rule: Option<Vec<i64>>,
    /// The units that stay free after a check.
    pub(crate) keep_free: KeepFree,
    pub(crate) op: Op,
}

/// An operation of the script on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Takes `cost` units if they fit within `max_wait` microseconds; a cost of 0 reports
    /// and takes nothing.
    Check { cost: i64, max_wait: i64 },
    /// Gives back `units` of the reservation of `cost` units with the mark `mark`. If units are
    /// held until they are settled, `units` is 0 if all were used, and negative if more were used.
    Refund { units: i64, cost: i64, mark: Mark },
    /// Holds the `cost` units of the reservation with the mark `mark` as if they were charged now.
    Renew { cost: i64, mark: Mark },
    /// Answers like a check, and takes nothing.
    Estimate { cost: i64, max_wait: i64 },
    /// Takes `cost` units, even if they do not fit. With `births`, only of keys that have them.
    Penalize { cost: i64, births: Option<Box<[i64]>> },
    /// Gives back units that were taken, whoever took them.
    Grant { cost: i64 },
    /// Forgets the key.
    Reset,
    /// Refuses checks for `time` microseconds, or until a block with a later end is over.
    Block { time: i64 },
    /// Lets checks fit only after `time` microseconds, or when a later pause is over.
    Pause { time: i64 },
    /// Ends a block and a pause.
    Unblock,
}

impl Request {
    /// Returns true if both differ only in their keys. The call then has the operation once.
    fn differs_in_key_only(&self, other: &Request) -> bool {
        self.op == other.op && self.rule == other.rule && self.keep_free == other.keep_free
    }

    /// Returns the check that the answer to it is about.
    fn answered_as(&self) -> Check<'_> {
        match self.op {
            Op::Check { cost, max_wait } | Op::Estimate { cost, max_wait } => {
                Check::new(cost, max_wait).keeping(self.keep_free.as_slice())
            }
            // Answered like a peek after the operation.
            _ => Check::PEEK,
        }
    }
}

/// Appends the keys and arguments of a call. `key_prefixes` are those of a charge's keys, one for
/// each quota. Of the requests, those of one key are adjacent.
pub(super) fn append_call(
    command: &mut Cmd,
    now: Option<i64>,
    key_prefixes: &[String],
    rule: &[i64],
    requests: &[&Request],
) {
    let groups: SmallVec<[_; 1]> = requests.chunk_by(|one, next| one.key == next.key).collect();
    command.arg(groups.len() * key_prefixes.len());
    for group in &groups {
        let mut suffixes = key_suffixes(&group[0].key, key_prefixes.len());
        let mut suffix = "";
        for prefix in key_prefixes {
            suffix = suffixes.next().unwrap_or(suffix);
            let mut name = command.writer_for_next_arg();
            let written = name.write_all(prefix.as_bytes()).and(name.write_all(suffix.as_bytes()));
            written.expect("a command takes all");
        }
    }
    match now {
        Some(now) => command.arg(now),
        None => command.arg(""),
    };
    command.arg(rule);
    for alike in groups.chunk_by(|one, next| are_alike(one, next)) {
        let segments = || alike[0].chunk_by(|one, next| one.differs_in_key_only(next));
        command.arg(alike.len()).arg(segments().count());
        for segment in segments() {
            command.arg(segment.len());
            append_operation(command, key_prefixes.len(), segment[0]);
        }
    }
}

/// Returns true if the requests of two keys differ only in their keys.
fn are_alike(one: &[&Request], other: &[&Request]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.differs_in_key_only(other))
}

fn append_operation(command: &mut Cmd, quotas: usize, request: &Request) {
    if let Some(rule) = &request.rule {
        command.arg("quota").arg(rule);
    }
    if !request.keep_free.is_none() && matches!(request.op, Op::Check { .. } | Op::Estimate { .. })
    {
        command.arg("keep");
        for index in 0..quotas {
            command.arg(request.keep_free.of(index));
        }
    }
    let births = match &request.op {
        Op::Refund { mark, .. } | Op::Renew { mark, .. } => mark.births(),
        Op::Penalize { births, .. } => births.as_deref().unwrap_or_default(),
        _ => &[],
    };
    if !births.is_empty() {
        command.arg("born").arg(births);
    }
    match &request.op {
        Op::Check { cost, max_wait } => command.arg(cost).arg(max_wait),
        Op::Refund { units, cost, mark } => {
            if units == cost {
                command.arg("refund").arg(cost);
            } else {
                command.arg("settle").arg(cost - units).arg(cost);
            }
            command.arg(mark.words())
        }
        Op::Renew { cost, mark } => command.arg("renew").arg(cost).arg(mark.words()),
        Op::Estimate { cost, max_wait } => command.arg("estimate").arg(cost).arg(max_wait),
        Op::Penalize { cost, .. } => command.arg("penalize").arg(cost),
        Op::Grant { cost } => command.arg("grant").arg(cost),
        Op::Reset => command.arg("reset"),
        Op::Block { time } => command.arg("block").arg(time),
        Op::Pause { time } => command.arg("pause").arg(time),
        Op::Unblock => command.arg("unblock"),
    };
}

/// Splits the joined suffixes of the keys of `quotas` quotas, each of which begins with a brace.
/// One quota has one suffix.
pub(crate) fn key_suffixes(suffixes: &str, quotas: usize) -> impl Iterator<Item = &str> {
    let mut rest = suffixes;
    std::iter::from_fn(move || {
        let next = if quotas == 1 { None } else { rest.get(1..)?.find('{') };
        let (suffix, after) = rest.split_at(next.map_or(rest.len(), |at| at + 1));
        rest = after;
        (!suffix.is_empty()).then_some(suffix)
    })
}

#[cfg(test)]
mod tests;
