//! The fixed window aligned to the epoch, by the number of the window.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, ceil, numbers};

/// `limit` units in each window of `period` µs; the latest window that holds units, and the units.
#[derive(Debug)]
pub struct Window {
    limit: i128,
    period: i128,
    latest: Option<(i128, i128)>,
}

impl Window {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota))
    }

    pub fn new(quota: Quota) -> Self {
        let (limit, period, _) = numbers(quota);
        Self { limit, period, latest: None }
    }

    /// The latest window that still matters at `now`: not over, and not emptied once it has begun.
    fn alive(&self, now: i128) -> Option<(i128, i128)> {
        let current = now.div_euclid(self.period);
        self.latest.filter(|&(number, units)| number > current || number == current && units > 0)
    }
}

impl Model for Window {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        let Some((number, units)) = self.alive(now) else { return Some(now) };
        let place = if units + cost <= self.limit { number } else { number + 1 };
        Some(now.max(place * self.period))
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        let number = at.div_euclid(self.period);
        let before = self.latest.filter(|latest| latest.0 == number).map_or(0, |latest| latest.1);
        self.latest = Some((number, before + cost));
        [number, 0]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        self.alive(now).filter(|latest| latest.0 == mark[0]).map_or(0, |latest| latest.1.min(cost))
    }

    fn put_back(&mut self, _mark: Mark, units: i128) {
        self.latest = self.latest.map(|(number, taken)| (number, taken - units));
    }

    fn remaining(&self, now: i128) -> i128 {
        match self.alive(now) {
            None => self.limit,
            Some((number, _)) if number * self.period > now => 0,
            Some((_, units)) => (self.limit - units).max(0),
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        match self.alive(now) {
            None => 0,
            Some((number, 0)) => number * self.period - now,
            Some((number, _)) => (number + 1) * self.period - now,
        }
    }

    /// `instant:units`, the instant being any in the window.
    fn is_stored_as(&self, text: &str) -> bool {
        let Some((instant, units)) = text.split_once(':') else { return false };
        let [Ok(instant), Ok(units)] = [instant, units].map(str::parse::<i128>) else {
            return false;
        };
        self.latest == Some((instant.div_euclid(self.period), units))
    }

    /// Each window holds at most the limit, and so any stretch of a period at most twice that.
    fn excess(&self, grants: &[Grant]) -> usize {
        let (mut window, mut sum, mut excess) = (None, 0, 0);
        for &(at, cost) in grants {
            let number = Some(at.div_euclid(self.period));
            sum = if number == window { sum + cost } else { cost };
            window = number;
            excess += usize::from(sum > self.limit);
        }
        excess
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        let (begin, end) = (ceil(first, self.period), last.div_euclid(self.period));
        let windows = (end - begin).max(0);
        (begin * self.period..(begin + windows) * self.period, windows * self.limit)
    }
}
