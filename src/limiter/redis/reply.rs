//! A script's reply, read with suspicion: whatever a server sends, nothing is admitted that
//! was not decided.
//!
//! It is one string, a flat list that the server's `cmsgpack` packed: cheaper to send and to
//! read than an array. Of that format only what a script uses is known here: a list of
//! integers and texts.

use redis::Value;

use super::error;
use super::request::{Op, Request};
use crate::algorithm::{Answer, INEXACT, LATEST, Mark, Report, Verdict};
use crate::{Error, ErrorKind};

/// The elements that answer one charge, besides what it left.
const WIDTH: usize = 4;

/// The elements of what a charge left, for each quota.
const MARK_LENGTH: usize = 4;

/// No wait, count or state is larger.
const LARGEST: i64 = INEXACT;

/// What a script answers about one charge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Decided(Answer),
    Refunded { units: i64 },
}

/// The reply to a batch: the instant of the decisions, and the elements of each charge in order.
#[derive(Debug)]
pub(super) struct BatchReply<'a> {
    pub(super) now: i64,
    /// The elements for each charge.
    width: usize,
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
        // Of several quotas the script also names the one that refuses.
        let width = WIDTH + MARK_LENGTH * quotas + usize::from(quotas > 1);
        let Value::BulkString(packed) = reply else { return Err(malformed_reply()) };
        let elements = unpack(packed).ok_or_else(malformed_reply)?;
        match elements.first() {
            Some(Element::Number(now @ 0..=LATEST)) if elements.len() == 1 + charges * width => {
                Ok(Self { now: *now, width, quotas, elements })
            }
            _ => Err(malformed_reply()),
        }
    }

    /// What it says of the charge at `place`, whose request was `request`.
    ///
    /// # Errors
    ///
    /// Why this charge failed; or if what is said of it cannot be.
    pub(super) fn entry(&self, place: usize, request: &Request) -> Result<Entry, Error> {
        let begin = 1 + place * self.width;
        let elements = &self.elements[begin..begin + self.width];
        if let Element::Text(text) = elements[0] {
            return Err(error::from_error_reply(&String::from_utf8_lossy(text)));
        }
        let number = |element: &Element<'_>| match element {
            Element::Number(value @ 0..=LARGEST) => Ok(*value),
            _ => Err(malformed_reply()),
        };
        let four = |four: &[Element<'_>]| -> Result<[i64; 4], Error> {
            Ok([number(&four[0])?, number(&four[1])?, number(&four[2])?, number(&four[3])?])
        };
        let [outcome, wait, remaining, reset_after] = four(&elements[..WIDTH])?;
        let (each, quota_index) = elements[WIDTH..].split_at(self.quotas * MARK_LENGTH);
        let quota_index = quota_index.first().map(number).transpose()?;
        let quota_index =
            quota_index.and_then(|quota_index| usize::try_from(quota_index).ok()).unwrap_or(0);
        let mark_of = |each: &[Element<'_>]| -> Result<Mark, Error> {
            // A list stands where four numbers are too few.
            let [one, two, three, Element::Text(list)] = each else {
                return Ok(four(each)?.into());
            };
            let list = parse_unit_list(list).ok_or_else(malformed_reply)?;
            Ok(Mark::from([number(one)?, number(two)?, number(three)?, 0]).with_list(list))
        };
        let mark = match self.quotas {
            1 => mark_of(each)?,
            _ => each.chunks_exact(MARK_LENGTH).map(mark_of).collect::<Result<Vec<_>, _>>()?.into(),
        };
        let report = Report { remaining, reset_after };
        let mark = Some(mark);
        let decided = |verdict| Entry::Decided(Answer { verdict, report, quota_index, mark });
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
            (5, Op::Refund { units, .. }) if wait <= *units => Ok(Entry::Refunded { units: wait }),
            _ => Err(malformed_reply()),
        }
    }

    /// Whether a charge failed since the server takes no writes.
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

/// The elements of a packed list; `None` if it is none, or anything follows it.
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
    let exact = |units: &str| units.parse().ok().filter(|units| (0..=LARGEST).contains(units));
    units.map(exact).collect()
}

fn element<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let kind = byte(rest)?;
    let length = match kind {
        0x00..=0x7f => return Some(Element::Number(kind.into())),
        0xcc..=0xcf => return unsigned(rest, 1 << (kind - 0xcc)).map(Element::Number),
        0xa0..=0xbf => i64::from(kind & 0x1f),
        0xd9..=0xdb => unsigned(rest, 1 << (kind - 0xd9))?,
        // Negative numbers, fractions and all else are nothing that a script says.
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
