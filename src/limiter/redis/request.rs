//! A request: the name of one key, the quota if the charge brings one, and the operation.

use crate::algorithm::Mark;
use crate::quota::Quotas;

/// One entry of a script call.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The suffix of its keys' names: one for all quotas, or one for each, joined.
    pub(super) key: String,
    /// The charge's own quota, and its rule as the script reads it.
    pub(super) quota: Option<Quotas>,
    pub(super) rule: Option<Vec<i64>>,
    pub(super) op: Op,
}

/// What the script does to the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Takes `cost` units if they fit within `max_wait` microseconds; a cost of 0 reports
    /// and takes nothing.
    Check { cost: i64, max_wait: i64 },
    /// Gives back `units` of the reservation of `cost` units whose mark is `mark`. Of what is held
    /// until it is settled also 0, if all units were used, and fewer, if more were.
    Refund { units: i64, cost: i64, mark: Mark },
    /// Answers as a check would, and takes nothing.
    Estimate { cost: i64, max_wait: i64 },
    /// Takes `cost` units, whether or not they fit.
    Penalize { cost: i64 },
    /// Forgets the key.
    Reset,
    /// Refuses checks for so many microseconds, or until a later block ends.
    Block { time: i64 },
    /// Ends a block.
    Unblock,
}

impl Request {
    /// Whether both differ in their keys only, so that the script call names the operation once.
    pub(super) fn differs_in_key_only(&self, other: &Request) -> bool {
        self.op == other.op && self.rule == other.rule
    }
}
