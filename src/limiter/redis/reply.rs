//! Reads a script's reply, and checks every number: whatever a server sends, nothing is admitted
//! that the script did not decide.
//!
//! It is one string, a flat list that the server's `cmsgpack` packed: cheaper to send and to
//! read than an array. This reads only what a script uses of that format: a list of integers
//! and texts.

use redis::Value;

use super::error;
use super::request::{Op, Request};
use crate::algorithm::{Answer, INEXACT, LATEST, Mark, Report, Verdict};
use crate::{Error, ErrorKind};

/// The elements for one charge, without the marks.
const FIXED_ELEMENTS: usize = 4;

/// The elements of a mark; there is one for each quota.
const MARK_LENGTH: usize = 4;

/// No wait, count or state is larger.
const MAX_NUMBER: i64 = INEXACT;

/// What a reply says of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyEntry {
    Decided(Answer),
    Refunded { units: i64 },
}

/// The reply to a batch: the instant of the decisions, and the elements of each charge in order.
#[derive(Debug)]
pub(super) struct BatchReply<'a> {
    pub(super) now: i64,
    /// The number of elements for each charge.
    elements_per_charge: usize,
    quotas: usize,
    elements: Vec<Element<'a>>,
}

impl<'a> BatchReply<'a> {
    /// Unpacks the reply to a call of `charges`, each under `quotas` quotas.
    ///
    /// # Errors
    ///
    /// If it has another shape than the script gives it.
    pub(super) fn read(reply: &'a Value, charges: usize, quotas: usize) -> Result<Self, Error> {
        // With several quotas the script also gives the index of the one that refuses.
        let elements_per_charge = FIXED_ELEMENTS + MARK_LENGTH * quotas + usize::from(quotas > 1);
        let Value::BulkString(packed) = reply else { return Err(malformed_reply()) };
        let elements = unpack(packed).ok_or_else(malformed_reply)?;
        match elements.first() {
            Some(Element::Number(now @ 0..=LATEST))
                if elements.len() == 1 + charges * elements_per_charge =>
            {
                Ok(Self { now: *now, elements_per_charge, quotas, elements })
            }
            _ => Err(malformed_reply()),
        }
    }

    /// What it says of the request at `position`.
    ///
    /// # Errors
    ///
    /// Why this charge failed; or if no script gives such elements.
    pub(super) fn entry(&self, position: usize, request: &Request) -> Result<ReplyEntry, Error> {
        let begin = 1 + position * self.elements_per_charge;
        let elements = &self.elements[begin..begin + self.elements_per_charge];
        if let Element::Text(text) = elements[0] {
            return Err(error::from_error_reply(&String::from_utf8_lossy(text)));
        }
        let number = |element: &Element<'_>| match element {
            Element::Number(value @ 0..=MAX_NUMBER) => Ok(*value),
            _ => Err(malformed_reply()),
        };
        let four_numbers = |four: &[Element<'_>]| -> Result<[i64; 4], Error> {
            Ok([number(&four[0])?, number(&four[1])?, number(&four[2])?, number(&four[3])?])
        };
        let [outcome, wait, remaining, reset_after] = four_numbers(&elements[..FIXED_ELEMENTS])?;
        let (marks, quota_index) = elements[FIXED_ELEMENTS..].split_at(self.quotas * MARK_LENGTH);
        let quota_index = quota_index.first().map(number).transpose()?;
        let quota_index =
            quota_index.and_then(|quota_index| usize::try_from(quota_index).ok()).unwrap_or(0);
        let mark_of = |mark: &[Element<'_>]| -> Result<Mark, Error> {
            // A list stands in place of the fourth number where four are too few.
            let [one, two, three, Element::Text(list)] = mark else {
                return Ok(four_numbers(mark)?.into());
            };
            let list = parse_unit_list(list).ok_or_else(malformed_reply)?;
            Ok(Mark::from([number(one)?, number(two)?, number(three)?, 0]).with_list(list))
        };
        let mark = match self.quotas {
            1 => mark_of(marks)?,
            _ => {
                marks.chunks_exact(MARK_LENGTH).map(mark_of).collect::<Result<Vec<_>, _>>()?.into()
            }
        };
        let report = Report { remaining, reset_after };
        let mark = Some(mark);
        let decided = |verdict| ReplyEntry::Decided(Answer { verdict, report, quota_index, mark });
        match (outcome, &request.op) {
            (0, Op::Check { .. } | Op::Estimate { .. }) if wait == 0 => Ok(decided(Verdict::Allow)),
            (1, Op::Check { max_wait, .. } | Op::Estimate { max_wait, .. })
                if (1..=*max_wait).contains(&wait) =>
            {
                Ok(decided(Verdict::Wait(wait)))
            }
            (2, Op::Check { .. } | Op::Estimate { .. }) if wait > 0 => {
                Ok(decided(Verdict::Deny(wait)))
            }
            (3, Op::Check { .. } | Op::Estimate { .. }) => Ok(decided(Verdict::Never)),
            (0, Op::Penalize { .. } | Op::Reset) if wait == 0 => Ok(decided(Verdict::Allow)),
            (2, Op::Penalize { .. }) if wait > 0 => Ok(decided(Verdict::Deny(wait))),
            (5, Op::Refund { units, .. }) if wait <= *units => {
                Ok(ReplyEntry::Refunded { units: wait })
            }
            _ => Err(malformed_reply()),
        }
    }

    /// Whether a charge failed because the server takes no writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.elements.iter().any(|element| match element {
            Element::Text(text) => error::is_read_only(&String::from_utf8_lossy(text)),
            Element::Number(_) => false,
        })
    }
}

pub(crate) fn malformed_reply() -> Error {
    Error::new(ErrorKind::State, "the reply is not one that the script gives")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element<'a> {
    Number(i64),
    Text(&'a [u8]),
}

/// The elements of a packed list; `None` if it is not a list, or anything follows it.
fn unpack(packed: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut rest = packed;
    let count = match byte(&mut rest)? {
        small @ 0x90..=0x9f => usize::from(small & 0x0f),
        0xdc => usize::try_from(unsigned(&mut rest, 2)?).ok()?,
        0xdd => usize::try_from(unsigned(&mut rest, 4)?).ok()?,
        _ => return None,
    };
    // Each element has a byte at least, so no count makes this reserve more than was sent.
    let mut elements = Vec::with_capacity(count.min(rest.len()));
    for _ in 0..count {
        elements.push(element(&mut rest)?);
    }
    rest.is_empty().then_some(elements)
}

/// The units that a text lists: `,5,0,1`.
fn parse_unit_list(text: &[u8]) -> Option<Box<[i64]>> {
    let units = str::from_utf8(text).ok()?.strip_prefix(',')?.split(',');
    let parse = |units: &str| units.parse().ok().filter(|units| (0..=MAX_NUMBER).contains(units));
    units.map(parse).collect()
}

fn element<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let kind = byte(rest)?;
    let length = match kind {
        0x00..=0x7f => return Some(Element::Number(kind.into())),
        0xcc..=0xcf => return unsigned(rest, 1 << (kind - 0xcc)).map(Element::Number),
        0xa0..=0xbf => i64::from(kind & 0x1f),
        0xd9..=0xdb => unsigned(rest, 1 << (kind - 0xd9))?,
        // Negative numbers, fractions and all else never come from a script.
        _ => return None,
    };
    let (text, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Element::Text(text))
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

/// An unsigned number of `bytes` bytes, the highest first.
fn unsigned(rest: &mut &[u8], bytes: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    let number = number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    i64::try_from(number).ok()
}

#[cfg(test)]
mod tests;
