//! Reads a script's reply, and checks every number. For every reply of a server, a charge is
//! admitted only if the script admitted it.
//!
//! A reply is one string, a flat list that the server's `cmsgpack` packed: that is cheaper than an
//! array. This module reads only lists of integers and texts.

use std::borrow::Cow;

use redis::Value;

use super::{Op, Request};
#[cfg(feature = "calendar")]
use crate::algorithm::clocks_differ;
use crate::algorithm::{Check, Element, INEXACT, InLua, LATEST, Mark, Ruling, ScriptPart, Verdict};
use crate::core::{Error, ErrorKind};
#[cfg(feature = "calendar")]
use crate::limiter::charge_numbers::{micros, system_time};
use crate::limiter::configured::ConfiguredAlgorithm;

/// A packed `false`.
const FALSE: u8 = 0xc2;

/// The largest wait, count or state.
const MAX_NUMBER: i64 = INEXACT;

/// The start of a text about a charge of which a key is blocked. The end of the block of each quota's
/// key follows, 0 for one that is not blocked; for a penalty, then the units that it could not take.
const BLOCKED: &[u8] = b"BLOCKED ";

/// The text about a charge whose edges of a calendar do not hold the server's present.
#[cfg(feature = "calendar")]
const CALENDAR: &[u8] = b"CALENDAR";

/// The start of a text about a key that is paused. The end of the pause of each quota's key follows,
/// 0 for one that is not paused, and after a colon what would be in place of the text without a
/// pause.
const PAUSED: &[u8] = b"PAUSED ";

/// The start of a text about units that were taken of a key that was reset. The wait follows, as
/// the number that would stand for it, and the birth of each quota's key.
const RESET: &[u8] = b"RESET ";

/// The answer to one request in a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplyEntry {
    Decided(Ruling),
    /// The units given back; below 0, those that could not be taken.
    Settled {
        units: i64,
    },
    /// The mark of a renewed hold, and true if all units were still held.
    Renewed {
        mark: Mark,
        is_held: bool,
    },
}

impl ReplyEntry {
    /// Returns the units that were given back; below 0, those that could not be taken.
    pub(crate) fn settled(&self) -> i64 {
        match self {
            Self::Settled { units } => *units,
            Self::Decided(answer) => -answer.not_taken,
            Self::Renewed { .. } => 0,
        }
    }
}

/// Reads a script's answer to a charge, with the arithmetic of its algorithm.
pub(crate) trait ReadEntry: Send + Sync {
    /// Returns the answer to a request that the script decided at the instant `now`.
    ///
    /// The script decides. `wait` is the wait until the charge fits; a negative value means that
    /// the script took the units. For a refund, it is the number of units given back; below 0, of
    /// those that could not be taken. The answer is computed here, from the `state` on which the
    /// script decided. If both do not agree, the reply is not from the script.
    ///
    /// # Errors
    ///
    /// If the reply is not from the script, or if the algorithm cannot follow the quota of the
    /// request.
    fn read(
        &self,
        now: i64,
        request: &Request,
        wait: i64,
        paused: &[i64],
        state: &[Element<'_>],
    ) -> Result<ReplyEntry, Error>;

    /// Returns the answer to a check that the script decided in the short way, on the state that
    /// `number` tells. It is -1 minus the state if the script took the units.
    fn read_short(&self, now: i64, request: &Request, number: i64) -> Result<Ruling, Error>;

    /// Returns the answer to a request of which keys are blocked, until `ends`.
    fn blocked(
        &self,
        now: i64,
        request: &Request,
        ends: &[i64],
        paused: &[i64],
        state: &[Element<'_>],
    ) -> Result<Ruling, Error>;
}

impl<A: InLua> ReadEntry for ConfiguredAlgorithm<A> {
    fn read(
        &self,
        now: i64,
        request: &Request,
        wait: i64,
        paused: &[i64],
        state: &[Element<'_>],
    ) -> Result<ReplyEntry, Error> {
        let check = match request.op {
            Op::Refund { units, .. } => {
                let is_possible = (units.min(0)..=units.max(0)).contains(&wait);
                return is_possible
                    .then_some(ReplyEntry::Settled { units: wait })
                    .ok_or_else(malformed_reply);
            }
            Op::Renew { cost, ref mark } => {
                let rule = self.rule(request.quota.as_ref())?;
                let state = A::state(&rule, now, Check::new(cost, 0), &mut &*state);
                let mut state = state.ok_or_else(malformed_reply)?;
                let (next, may_be_held) = A::renew(&rule, &mut state, now, cost, mark);
                // The twin does not see if the key was reset.
                if wait != 0 && (wait != cost || !may_be_held) {
                    return Err(malformed_reply());
                }
                let (mark, is_held) = (next.with_births(mark.births()), wait == cost);
                return Ok(ReplyEntry::Renewed { mark, is_held });
            }
            _ => request.answered_as().paused_until(paused),
        };
        let rule = self.rule(request.quota.as_ref())?;
        let state = A::state(&rule, now, check, &mut &*state);
        let mut state = state.ok_or_else(malformed_reply)?;
        // These answer with another number than the wait.
        let most_not_taken = match request.op {
            Op::Penalize { cost, .. } => Some(cost),
            Op::Grant { .. } | Op::Reset => Some(0),
            _ => None,
        };
        if let Some(most) = most_not_taken {
            let not_taken = Some(wait).filter(|wait| (0..=most).contains(wait));
            let not_taken = not_taken.ok_or_else(malformed_reply)?;
            let answer = A::estimate(&rule, state.as_ref(), now, check);
            return Ok(ReplyEntry::Decided(Ruling { not_taken, ..answer }));
        }
        let (is_taken, wait) = if wait < 0 { (true, -1 - wait) } else { (false, wait) };
        let answer = match request.op {
            Op::Estimate { .. } => A::estimate(&rule, state.as_ref(), now, check),
            _ => A::step(&rule, &mut state, now, check),
        };
        let (takes, expected) = match answer.verdict {
            Verdict::Allow => (true, 0),
            Verdict::Wait(wait) => (true, wait),
            Verdict::Deny(wait) => (false, wait),
            Verdict::Never => (false, 0),
        };
        let takes = takes && check.cost > 0 && matches!(request.op, Op::Check { .. });
        if (is_taken, wait) == (takes, expected) {
            Ok(ReplyEntry::Decided(answer))
        } else {
            Err(malformed_reply())
        }
    }

    fn read_short(&self, now: i64, request: &Request, number: i64) -> Result<Ruling, Error> {
        let Op::Check { cost: cost @ 1.., max_wait } = request.op else {
            return Err(malformed_reply());
        };
        let (is_taken, number) = if number < 0 { (true, -1 - number) } else { (false, number) };
        let rule = self.rule(request.quota.as_ref())?;
        let mut state = A::short_state(&rule, now, number).ok_or_else(malformed_reply)?;
        let check = Check::new(cost, max_wait).keeping(request.keep_free.as_slice());
        let answer = A::step(&rule, &mut state, now, check);
        let takes = matches!(answer.verdict, Verdict::Allow | Verdict::Wait(_));
        if is_taken == takes { Ok(answer) } else { Err(malformed_reply()) }
    }

    fn blocked(
        &self,
        now: i64,
        request: &Request,
        ends: &[i64],
        paused: &[i64],
        state: &[Element<'_>],
    ) -> Result<Ruling, Error> {
        let (rule, check) = (self.rule(request.quota.as_ref())?, request.answered_as());
        let check = check.paused_until(paused);
        let state = A::state(&rule, now, check, &mut &*state).ok_or_else(malformed_reply)?;
        Ok(A::blocked(&rule, state.as_ref(), now, check, ends))
    }
}

/// What the answers of a script consist of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyForm {
    /// The elements that hold the state of a charge's keys.
    state_elements: usize,
    /// True if an answer may also be one number. Before every other one stands `false`.
    has_short_answers: bool,
}

impl ReplyForm {
    pub(crate) fn of(parts: &[ScriptPart]) -> Self {
        let state_elements = parts.iter().map(ScriptPart::state_elements).sum();
        let has_short_answers = matches!(parts, [only] if only.has_short_answers());
        Self { state_elements, has_short_answers }
    }
}

/// The reply to a batch: the instant of the decisions, and the answer to each charge in order.
#[derive(Debug)]
pub(crate) struct BatchReply<'a> {
    pub(crate) now: i64,
    answers: Vec<PackedAnswer<'a>>,
    /// The elements of the answers that are neither a number nor an error alone.
    elements: Vec<Element<'a>>,
    form: ReplyForm,
}

/// The answer to a charge.
#[derive(Clone, Copy, Debug)]
enum PackedAnswer<'a> {
    /// The state on which it was decided, as a number.
    Short(i64),
    /// The text of an error.
    Failed(&'a [u8]),
    /// The place of its elements.
    Long(usize),
}

impl<'a> BatchReply<'a> {
    /// Unpacks the reply to a call of `charges` charges.
    pub(crate) fn read(reply: &'a Value, charges: usize, form: ReplyForm) -> Result<Self, Error> {
        let Value::BulkString(packed) = reply else { return Err(malformed_reply()) };
        Self::unpack(packed, charges, form).ok_or_else(malformed_reply)
    }

    fn unpack(packed: &'a [u8], charges: usize, form: ReplyForm) -> Option<Self> {
        let mut rest = packed;
        let mut left = list_length(&mut rest)?;
        let Element::Number(now @ 0..=LATEST) = element(&mut rest)? else { return None };
        left = left.checked_sub(1)?;
        // Each answer has at least one byte, so a short reply never reserves much memory.
        let mut answers = Vec::with_capacity(charges.min(rest.len()));
        let mut elements = Vec::new();
        for _ in 0..charges {
            if form.has_short_answers {
                left = left.checked_sub(1)?;
                if rest.first() != Some(&FALSE) {
                    answers.push(match element(&mut rest)? {
                        Element::Number(number) => PackedAnswer::Short(number),
                        Element::Text(text) => PackedAnswer::Failed(text),
                    });
                    continue;
                }
                rest = &rest[1..];
            }
            answers.push(PackedAnswer::Long(elements.len()));
            for _ in 0..=form.state_elements {
                left = left.checked_sub(1)?;
                elements.push(element(&mut rest)?);
            }
        }
        (left == 0 && rest.is_empty()).then_some(Self { now, answers, elements, form })
    }

    /// Returns the answer to `request`, the one at `position` in the call. `raised` converts an
    /// error text of the server to an error.
    pub(crate) fn entry(
        &self,
        position: usize,
        request: &Request,
        reader: &dyn ReadEntry,
        raised: impl Fn(&str) -> Error,
    ) -> Result<ReplyEntry, Error> {
        let begin = match self.answers[position] {
            PackedAnswer::Short(number) => {
                let is_exact = (-MAX_NUMBER..=MAX_NUMBER).contains(&number);
                let number = Some(number).filter(|_| is_exact).ok_or_else(malformed_reply)?;
                return reader.read_short(self.now, request, number).map(ReplyEntry::Decided);
            }
            PackedAnswer::Failed(text) => return Err(raised(&String::from_utf8_lossy(text))),
            PackedAnswer::Long(begin) => begin,
        };
        let (wait, state) = self.elements[begin..=begin + self.form.state_elements]
            .split_first()
            .ok_or_else(malformed_reply)?;
        // A foreign value in a key may give a number outside of the script's range. Only the charge
        // of that key fails.
        let is_exact = |element: &Element<'_>| match element {
            Element::Number(number) => (-MAX_NUMBER..=MAX_NUMBER).contains(number),
            Element::Text(_) => true,
        };
        if !is_exact(wait) || !state.iter().all(is_exact) {
            return Err(malformed_reply());
        }
        let (mut paused, mut rest) = (Vec::new(), None);
        if let Element::Text(text) = wait
            && text.starts_with(PAUSED)
        {
            let ends_and_rest = pause_ends(text, self.now).ok_or_else(malformed_reply)?;
            (paused, rest) = (ends_and_rest.0, Some(ends_and_rest.1));
        }
        let paused = paused.as_slice();
        match rest.as_ref().unwrap_or(wait) {
            Element::Number(wait) => reader.read(self.now, request, *wait, paused, state),
            // With one quota, a block hides a pause.
            Element::Text(text) if text.starts_with(BLOCKED) && paused.len() != 1 => {
                let ends = block_ends(text, self.now, &request.op);
                let (ends, not_taken) = ends.ok_or_else(malformed_reply)?;
                let answer = reader.blocked(self.now, request, &ends, paused, state)?;
                Ok(ReplyEntry::Decided(Ruling { not_taken, ..answer }))
            }
            Element::Text(text) if text.starts_with(RESET) => {
                let numbers = numbers_after(RESET, text).ok_or_else(malformed_reply)?;
                let Some((wait @ ..0, births @ [_, ..])) = numbers.split_first() else {
                    return Err(malformed_reply());
                };
                let mut entry = reader.read(self.now, request, *wait, paused, state)?;
                if let ReplyEntry::Decided(Ruling { mark: Some(mark), .. }) = &mut entry {
                    *mark = std::mem::take(mark).with_births(births);
                }
                Ok(entry)
            }
            Element::Text(_) if !paused.is_empty() => Err(malformed_reply()),
            #[cfg(feature = "calendar")]
            Element::Text(CALENDAR) => {
                let own = micros(system_time());
                Err(Error::new(ErrorKind::Configuration, clocks_differ(self.now, own)))
            }
            Element::Text(text) => Err(raised(&String::from_utf8_lossy(text))),
        }
    }

    /// Returns the texts in place of an answer: errors that the server raised, and ends of blocks.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Cow<'a, str>> {
        self.answers.iter().filter_map(|answer| match *answer {
            PackedAnswer::Short(_) => None,
            PackedAnswer::Failed(text) => Some(String::from_utf8_lossy(text)),
            // States have texts as well, which are not errors.
            PackedAnswer::Long(begin) => match self.elements[begin] {
                Element::Text(text) => Some(String::from_utf8_lossy(text)),
                Element::Number(_) => None,
            },
        })
    }
}

/// Reads the ends of blocks, and the units that a penalty could not take.
fn block_ends(text: &[u8], now: i64, op: &Op) -> Option<(Vec<i64>, i64)> {
    let mut ends = numbers_after(BLOCKED, text)?;
    let not_taken = match op {
        Op::Refund { .. } | Op::Renew { .. } => return None,
        Op::Penalize { cost, .. } => ends.pop().filter(|units| (0..=*cost).contains(units))?,
        _ => 0,
    };
    are_ends(&ends, now).then_some((ends, not_taken))
}

/// Reads the ends of pauses, and what follows after them.
fn pause_ends(text: &[u8], now: i64) -> Option<(Vec<i64>, Element<'_>)> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (ends, rest) = (numbers_after(PAUSED, &text[..colon])?, &text[colon + 1..]);
    let rest = match numbers_after(b"", rest).as_deref() {
        Some([wait]) => Element::Number(*wait),
        _ => Element::Text(rest),
    };
    are_ends(&ends, now).then_some((ends, rest))
}

/// Returns true if each number is 0 or later than `now`, and at least one is later.
fn are_ends(ends: &[i64], now: i64) -> bool {
    let is_possible = |end: &i64| *end == 0 || (now + 1..MAX_NUMBER).contains(end);
    ends.iter().all(is_possible) && ends.iter().any(|end| *end > 0)
}

/// Reads the numbers that follow in a text, with a space between them.
fn numbers_after(begin: &[u8], text: &[u8]) -> Option<Vec<i64>> {
    let numbers = str::from_utf8(text.strip_prefix(begin)?).ok()?.split(' ');
    let is_exact = |number: &i64| (-MAX_NUMBER..=MAX_NUMBER).contains(number);
    let number = |text: &str| text.parse().ok().filter(is_exact);
    // A script writes no plus, and no zero before a number.
    numbers.map(|text| number(text).filter(|number| number.to_string() == text)).collect()
}

pub(crate) fn malformed_reply() -> Error {
    Error::new(ErrorKind::State, "the reply is not one that the script gives")
}

/// Reads the length of a packed list. `None` if it is not a list.
fn list_length(rest: &mut &[u8]) -> Option<usize> {
    match *rest.split_off_first()? {
        small @ 0x90..=0x9f => Some(usize::from(small & 0x0f)),
        0xdc => usize::try_from(unsigned(rest, 2)?).ok(),
        0xdd => usize::try_from(unsigned(rest, 4)?).ok(),
        _ => None,
    }
}

fn element<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let kind = *rest.split_off_first()?;
    let length = match kind {
        0x00..=0x7f => return Some(Element::Number(kind.into())),
        0xcc..=0xcf => return unsigned(rest, 1 << (kind - 0xcc)).map(Element::Number),
        0xe0..=0xff => return Some(Element::Number(i64::from(kind.cast_signed()))),
        0xd0..=0xd3 => return signed(rest, 1 << (kind - 0xd0)).map(Element::Number),
        0xa0..=0xbf => i64::from(kind & 0x1f),
        0xd9..=0xdb => unsigned(rest, 1 << (kind - 0xd9))?,
        // A script sends no fractions and no other types.
        _ => return None,
    };
    let text = rest.split_off(..usize::try_from(length).ok()?)?;
    Some(Element::Text(text))
}

/// Reads an unsigned number of `bytes` bytes, the highest byte first.
fn unsigned(rest: &mut &[u8], bytes: usize) -> Option<i64> {
    let number = rest.split_off(..bytes)?;
    let number = number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    i64::try_from(number).ok()
}

/// Reads a signed number of `bytes` bytes, the highest byte first.
fn signed(rest: &mut &[u8], bytes: usize) -> Option<i64> {
    let number = rest.split_off(..bytes)?;
    let sign = if number.first()?.cast_signed() < 0 { -1 } else { 0 };
    Some(number.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
}

#[cfg(test)]
mod tests;
