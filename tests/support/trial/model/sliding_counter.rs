//! The sliding counter, as a count for each window that was ever used; instants are
//! found by halving.

use std::collections::BTreeMap;
use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, ceil, numbers};

/// `limit` units in a window of `period` µs and what is left of the one before.
#[derive(Clone, Debug)]
pub struct Counter {
    limit: i128,
    period: i128,
    units: BTreeMap<i128, i128>,
    latest: Option<i128>,
}

impl Counter {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        let (limit, period, _) = numbers(quota);
        Box::new(Self { limit, period, units: BTreeMap::new(), latest: None })
    }

    fn window(&self, number: i128) -> i128 {
        self.units.get(&number).copied().unwrap_or(0)
    }

    fn used(&self, at: i128) -> i128 {
        let (number, elapsed) = (at.div_euclid(self.period), at.rem_euclid(self.period));
        let before = self.window(number - 1) * (self.period - elapsed);
        self.window(number) + ceil(before, self.period)
    }
}

impl Model for Counter {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        let mut from = self.latest.map_or(now, |latest| latest.max(now));
        loop {
            let next = (from.div_euclid(self.period) + 1) * self.period;
            let fits = |at: i128| self.used(at) + cost <= self.limit;
            if fits(next - 1) {
                // Timeout a window what is used only falls.
                let (mut low, mut high) = (from, next - 1);
                while low < high {
                    let middle = (low + high).div_euclid(2);
                    if fits(middle) { high = middle } else { low = middle + 1 }
                }
                return Some(low);
            }
            from = next;
        }
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        let number = at.div_euclid(self.period);
        *self.units.entry(number).or_default() += cost;
        self.latest = Some(at);
        [number, 0]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        let number = self.latest.map(|latest| latest.div_euclid(self.period));
        let kept = number.is_some_and(|number| number - mark[0] <= 1);
        let alive = (mark[0] + 2) * self.period > now;
        if kept && alive { cost.min(self.window(mark[0])) } else { 0 }
    }

    fn put_back(&mut self, mark: Mark, units: i128) {
        *self.units.entry(mark[0]).or_default() -= units;
    }

    fn grant(&mut self, _now: i128, mut units: i128) {
        let Some(latest) = self.latest else { return };
        let number = latest.div_euclid(self.period);
        for (_, taken) in self.units.range_mut(number - 1..).rev() {
            let given = units.min(*taken);
            (*taken, units) = (*taken - given, units - given);
        }
    }

    fn remaining(&self, now: i128) -> i128 {
        match self.latest {
            Some(latest) if latest > now => 0,
            _ => (self.limit - self.used(now)).max(0),
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        let Some(latest) = self.latest else { return 0 };
        let number = latest.div_euclid(self.period);
        let end = match (self.window(number), self.window(number - 1)) {
            (1.., _) => (number + 2) * self.period,
            (_, 1..) => (number + 1) * self.period,
            _ => latest,
        };
        (end - now).max(0)
    }

    /// `begin:current:previous:latest`.
    fn is_stored_as(&self, text: &str) -> bool {
        let Some(latest) = self.latest else { return false };
        let number = latest.div_euclid(self.period);
        let parts = [number * self.period, self.window(number), self.window(number - 1), latest];
        text.split(':').eq(parts.map(|part| part.to_string()))
    }

    /// Less than twice the limit in any stretch of a period, and no more than it in any window.
    fn excess(&self, grants: &[Grant]) -> usize {
        let mut windows = BTreeMap::<i128, i128>::new();
        for (at, cost) in grants {
            *windows.entry(at.div_euclid(self.period)).or_default() += cost;
        }
        let over = windows.values().filter(|units| **units > self.limit).count();
        over + super::over_any_window(grants, self.period, 2 * self.limit - 1)
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        // The first window after a pause may begin with a whole burst, and the next
        // makes up for it.
        let (begin, end) = (ceil(first, self.period), last.div_euclid(self.period));
        let windows = (end - begin).max(0);
        (begin * self.period..(begin + windows) * self.period, windows * self.limit)
    }
}
