//! The token bucket in units of 1/L µs, in which nothing has to be divided.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, ceil, numbers};

/// `limit` units per `period`, at most `burst` at once; full again at `full / limit` µs.
#[derive(Clone, Debug)]
pub struct Bucket {
    limit: i128,
    period: i128,
    burst: i128,
    full: i128,
}

impl Bucket {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota))
    }

    pub fn new(quota: Quota) -> Self {
        let (limit, period, burst) = numbers(quota);
        Self { limit, period, burst, full: 0 }
    }

    /// Returns what the bucket would owe at `at` if `cost` were taken then, the unit being 1/L µs.
    fn debt(&self, at: i128, cost: i128) -> i128 {
        self.full.max(self.limit * at) + cost * self.period - self.limit * at
    }
}

impl Model for Bucket {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        let over = self.debt(now, cost) - self.burst * self.period;
        (cost <= self.burst).then(|| now + ceil(over, self.limit).max(0))
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        self.full = self.limit * at + self.debt(at, cost);
        [self.full, 0]
    }

    /// Marks the state before. Where there was none, another stands for it: full again a
    /// microsecond after the epoch.
    fn take_with_others(&mut self, now: i128, at: i128, cost: i128) -> Mark {
        let before = if at > now { self.full.max(self.limit) } else { 0 };
        [self.take(now, at, cost)[0], before]
    }

    fn returnable(&self, _now: i128, cost: i128, mark: Mark) -> i128 {
        if mark[0] == self.full { cost } else { 0 }
    }

    fn put_back(&mut self, mark: Mark, units: i128) {
        self.full = if mark[1] > 0 { mark[1] } else { self.full - units * self.period };
    }

    fn grant(&mut self, now: i128, units: i128) {
        self.full = (self.full - units * self.period).max(now * self.limit);
    }

    fn remaining(&self, now: i128) -> i128 {
        (self.burst * self.period - self.debt(now, 0)).div_euclid(self.period).max(0)
    }

    fn reset_after(&self, now: i128) -> i128 {
        ceil(self.debt(now, 0), self.limit)
    }

    /// `full`, or `full+part/over`.
    fn is_stored_as(&self, text: &str) -> bool {
        let (full, fraction) = text.split_once('+').unwrap_or((text, "0/1"));
        let Some((part, over)) = fraction.split_once('/') else { return false };
        let [Ok(full), Ok(part), Ok(over)] = [full, part, over].map(str::parse::<i128>) else {
            return false;
        };
        (full * over + part) * self.limit == self.full * over
    }

    /// For every i up to j: P · (S_j - S_(i-1)) - L · (t_j - t_i) ≤ B · P.
    fn excess(&self, grants: &[Grant]) -> usize {
        let (mut sum, mut least, mut excess) = (0, i128::MAX, 0);
        for &(at, cost) in grants {
            least = least.min(self.period * sum - self.limit * at);
            sum += cost;
            let most = self.period * sum - self.limit * at;
            excess += usize::from(most - least > self.burst * self.period);
        }
        excess
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        (first..last + 1, self.burst + self.limit * (last - first) / self.period)
    }
}
