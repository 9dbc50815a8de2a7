//! The fixed window that starts with a key's first charge.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, numbers};

/// `limit` units in a window of `period` µs: the latest one's start, and its units.
#[derive(Clone, Debug)]
pub struct Anchored {
    limit: i128,
    period: i128,
    latest: Option<(i128, i128)>,
}

impl Anchored {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        let (limit, period, _) = numbers(quota);
        Box::new(Self { limit, period, latest: None })
    }

    /// The window that matters at `now`: not over, and not emptied once it has begun.
    fn alive(&self, now: i128) -> Option<(i128, i128)> {
        let matters = |(start, units): &(i128, i128)| {
            start + self.period > now && (*units > 0 || *start > now)
        };
        self.latest.filter(matters)
    }
}

impl Model for Anchored {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        Some(match self.alive(now) {
            None => now,
            Some((start, units)) if units + cost <= self.limit => start.max(now),
            Some((start, _)) => start + self.period,
        })
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        let (start, units) = self.alive(at).unwrap_or((at, 0));
        self.latest = Some((start, units + cost));
        [start, 0]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        self.alive(now)
            .filter(|(start, _)| *start == mark[0])
            .map_or(0, |(_, units)| units.min(cost))
    }

    fn put_back(&mut self, _mark: Mark, units: i128) {
        self.latest = self.latest.map(|(start, taken)| (start, taken - units));
    }

    fn grant(&mut self, _now: i128, units: i128) {
        self.latest = self.latest.map(|(start, taken)| (start, (taken - units).max(0)));
    }

    fn remaining(&self, now: i128) -> i128 {
        match self.alive(now) {
            None => self.limit,
            Some((start, _)) if start > now => 0,
            Some((_, units)) => self.limit - units,
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        match self.alive(now) {
            None => 0,
            Some((start, 0)) => start - now,
            Some((start, _)) => start + self.period - now,
        }
    }

    /// `start:units`.
    fn is_stored_as(&self, text: &str) -> bool {
        self.latest.is_some_and(|(start, units)| text == format!("{start}:{units}"))
    }

    /// Any stretch of a period meets two windows at most. (Once some grants were refunded,
    /// the others do not show where a window began. The replay shows that each window holds no more
    /// than the limit.)
    fn excess(&self, grants: &[Grant]) -> usize {
        super::over_any_window(grants, self.period, 2 * self.limit)
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        let windows = (last - first) / self.period;
        (first..first + windows * self.period, windows * self.limit)
    }
}
