//! A request: the name of one key, the quota if the charge brings one, and the operation.

use crate::algorithm::Mark;
use crate::quota::Quotas;

/// One entry of a script call.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The suffix of its keys' names: one for all quotas, or one for each, joined.
    pub(crate) key: String,
    /// The charge's own quota, and its rule as the script reads it.
    pub(crate) quota: Option<Quotas>,
    pub(crate) rule: Option<Vec<i64>>,
    pub(crate) op: Op,
}

/// An operation of the script on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Takes `cost` units if they fit within `max_wait` microseconds; a cost of 0 reports
    /// and takes nothing.
    Check { cost: i64, max_wait: i64 },
    /// Gives back `units` of the reservation of `cost` units whose mark is `mark`. Where units are
    /// held until they are settled, `units` is 0 if all were used, and negative if more were.
    Refund { units: i64, cost: i64, mark: Mark },
    /// Answers as a check would, and takes nothing.
    Estimate { cost: i64, max_wait: i64 },
    /// Takes `cost` units, whether or not they fit.
    Penalize { cost: i64 },
    /// Forgets the key.
    Reset,
    /// Refuses checks for `time` microseconds, or until a block with a later end is over.
    Block { time: i64 },
    /// Ends a block.
    Unblock,
}

impl Request {
    /// Returns whether both differ in their keys only. The call then names the operation once.
    pub(super) fn differs_in_key_only(&self, other: &Request) -> bool {
        self.op == other.op && self.rule == other.rule
    }
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
mod tests {
    use super::*;

    // Cases 76, 78 and 79.
    #[test]
    fn joined_suffixes_are_parted_again() {
        let parted = |joined, quotas| key_suffixes(joined, quotas).collect::<Vec<_>>();
        assert_eq!(parted("{a}{b}{a}", 3), ["{a}", "{b}", "{a}"]);
        assert_eq!(parted("{7}:a{8}:b", 2), ["{7}:a", "{8}:b"]);
        assert_eq!(parted("{a}", 2), ["{a}"]);
        assert_eq!(parted("{a}{b}", 1), ["{a}{b}"]);
    }
}
