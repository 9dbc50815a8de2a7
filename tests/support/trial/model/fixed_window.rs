//! The fixed window aligned to the epoch or to a calendar, by the begin of the window.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Calendar, Grant, Mark, Model, ceil, numbers};

/// `limit` units in each window of `period` µs; the latest window that holds units, and the units.
#[derive(Clone, Debug)]
pub struct Window {
    limit: i128,
    period: i128,
    /// The windows are its own, not periods.
    calendar: Option<Calendar>,
    latest: Option<(i128, i128)>,
}

impl Window {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota))
    }

    pub fn new(quota: Quota) -> Self {
        let (limit, period, _) = numbers(quota);
        Self { limit, period, calendar: None, latest: None }
    }

    /// `limit` units in each window of a calendar.
    pub fn of(calendar: Calendar, limit: i128) -> Box<dyn Model> {
        Box::new(Self { limit, period: 0, calendar: Some(calendar), latest: None })
    }

    /// The begin of the window that holds an instant.
    fn begin(&self, at: i128) -> i128 {
        match self.calendar {
            Some(calendar) => calendar.begin(at),
            None => at.div_euclid(self.period) * self.period,
        }
    }

    /// The end of the window that begins at an instant.
    fn end(&self, begin: i128) -> i128 {
        match self.calendar {
            Some(calendar) => calendar.end(begin),
            None => begin + self.period,
        }
    }

    /// The latest window that still matters at `now`: not over, and not emptied once it has begun.
    fn alive(&self, now: i128) -> Option<(i128, i128)> {
        let current = self.begin(now);
        self.latest.filter(|&(begin, units)| begin > current || begin == current && units > 0)
    }
}

impl Model for Window {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        let Some((begin, units)) = self.alive(now) else { return Some(now) };
        Some(now.max(if units + cost <= self.limit { begin } else { self.end(begin) }))
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        let begin = self.begin(at);
        let before = self.latest.filter(|latest| latest.0 == begin).map_or(0, |latest| latest.1);
        self.latest = Some((begin, before + cost));
        [begin, 0]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        self.alive(now).filter(|latest| latest.0 == mark[0]).map_or(0, |latest| latest.1.min(cost))
    }

    fn put_back(&mut self, _mark: Mark, units: i128) {
        self.latest = self.latest.map(|(begin, taken)| (begin, taken - units));
    }

    fn grant(&mut self, _now: i128, units: i128) {
        self.latest = self.latest.map(|(begin, taken)| (begin, (taken - units).max(0)));
    }

    fn remaining(&self, now: i128) -> i128 {
        match self.alive(now) {
            None => self.limit,
            Some((begin, _)) if begin > now => 0,
            Some((_, units)) => (self.limit - units).max(0),
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        match self.alive(now) {
            None => 0,
            Some((begin, 0)) => begin - now,
            Some((begin, _)) => self.end(begin) - now,
        }
    }

    /// `instant:units`, the instant being any in the window.
    fn is_stored_as(&self, text: &str) -> bool {
        let Some((instant, units)) = text.split_once(':') else { return false };
        let [Ok(instant), Ok(units)] = [instant, units].map(str::parse::<i128>) else {
            return false;
        };
        self.latest == Some((self.begin(instant), units))
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
