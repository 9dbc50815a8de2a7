//! Redisson's limiter, as a list of grants in milliseconds: those that are stored, and those
//! that were removed.

use std::cell::Cell;
use std::ops::{Range, RangeInclusive};

use tower_sluice::Quota;

use super::{Grant, Mark, Model, numbers, over_any_window};

/// `limit` permits in any `interval` ms.
#[derive(Clone, Debug)]
pub struct Permits {
    limit: i128,
    interval: i128,
    /// Instants in ms, in the order in which they were granted.
    grants: Vec<Grant>,
    /// The time of the last call in ms: it removed what had expired, even if it was refused.
    asked: Cell<i128>,
}

impl Permits {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        let (limit, period, _) = numbers(quota);
        let interval = period / 1_000;
        Box::new(Self { limit, interval, grants: Vec::new(), asked: Cell::new(0) })
    }

    /// The permits granted in the interval that ends with the millisecond of `now`.
    fn used(&self, now: i128) -> i128 {
        let live = now / 1_000 - self.interval;
        self.grants.iter().filter(|grant| grant.0 > live).map(|grant| grant.1).sum()
    }

    fn stored(&self) -> impl Iterator<Item = &Grant> {
        let gone = self.asked.get() - self.interval;
        self.grants.iter().filter(move |grant| grant.0 > gone && grant.1 > 0)
    }
}

impl Model for Permits {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        self.asked.set(now / 1_000);
        let mut over = self.used(now) + cost - self.limit;
        let mut at = now;
        for grant in &self.grants {
            if over > 0 && grant.0 > now / 1_000 - self.interval {
                over -= grant.1;
                at = (grant.0 + self.interval) * 1_000;
            }
        }
        Some(at)
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        self.grants.push((at / 1_000, cost));
        [self.grants.len() as i128 - 1, 0]
    }

    /// Its random bytes identify it.
    fn may_be_sent_again(&self) -> bool {
        true
    }

    /// All of it as long as it is stored, which it may be when it has expired.
    fn returnable(&self, _now: i128, cost: i128, [place, _]: Mark) -> i128 {
        let at = self.grants[place as usize].0;
        if at > self.asked.get() - self.interval { cost } else { 0 }
    }

    fn put_back(&mut self, [place, _]: Mark, units: i128) {
        self.grants[place as usize].1 -= units;
    }

    fn remaining(&self, now: i128) -> i128 {
        (self.limit - self.used(now)).max(0)
    }

    fn reset_after(&self, now: i128) -> i128 {
        let last = self.stored().last();
        last.map_or(0, |last| ((last.0 + self.interval) * 1_000 - now).max(0))
    }

    /// `member@instant` in hexadecimal digits for each that is stored, `&`, and the
    /// permits that are free.
    fn is_stored_as(&self, text: &str) -> bool {
        let (members, value) = text.split_once(" & ").unwrap_or(("", text));
        let member = |text: &str| {
            let (member, at) = text.split_once('@')?;
            // A length, sixteen random bytes, and the permits.
            let permits = member.strip_prefix("10").filter(|_| member.len() == 42)?;
            let permits = u32::from_str_radix(&permits[32..], 16).ok()?.swap_bytes();
            Some((at.parse::<i128>().ok()?, i128::from(permits)))
        };
        let Some(mut members) = members
            .split(' ')
            .filter(|text| !text.is_empty())
            .map(member)
            .collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        let mut stored: Vec<_> = self.stored().copied().collect();
        members.sort_unstable();
        stored.sort_unstable();
        let used: i128 = stored.iter().map(|grant| grant.1).sum();
        members == stored && value.parse() == Ok(self.limit - used)
    }

    /// A change writes a member and the value. After an expiry any call writes the value alone.
    fn writes(&self, fewest: usize, changes: usize, calls: usize) -> RangeInclusive<usize> {
        fewest..=2 * changes + calls
    }

    fn excess(&self, grants: &[Grant]) -> usize {
        let millis: Vec<_> = grants.iter().map(|grant| (grant.0 / 1_000, grant.1)).collect();
        over_any_window(&millis, self.interval, self.limit)
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        let period = self.interval * 1_000;
        let periods = (last - first) / period;
        (first..first + periods * period, periods * self.limit)
    }
}
