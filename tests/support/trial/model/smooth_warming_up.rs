//! Smooth warming up, after the description of Guava's own: the same doubles in the same order, or
//! the last bits differ.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, numbers};

/// Permits come every `stable` µs; up to `most` are stored, which is full `warm` µs
/// after the last use.
#[derive(Clone, Debug)]
pub struct Warm {
    limit: i128,
    period: i128,
    warm: f64,
    stable: f64,
    threshold: f64,
    most: f64,
    slope: f64,
    own: bool,
    state: Option<(f64, i128)>,
    last: i128,
    reserved: bool,
    /// The state that each charge found, by what it left.
    found: Vec<(Mark, (f64, i128))>,
}

impl Warm {
    /// Warms up for a tenth of a period, by a factor of 3.
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota, false))
    }

    pub fn wait_for_own_cost(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota, true))
    }

    fn new(quota: Quota, own: bool) -> Self {
        let (limit, period, _) = numbers(quota);
        let divisor = (1..=limit).rev().find(|d| limit % d == 0 && period % d == 0).unwrap_or(1);
        let (r, p) = ((limit / divisor) as f64, (period / divisor) as f64);
        let warm = (period / 10) as f64;
        let rate = r * 1e6 / p;
        let stable = 1e6 / rate;
        let cold = stable * 3.0;
        let threshold = 0.5 * warm / stable;
        let most = threshold + 2.0 * warm / (stable + cold);
        let slope = (cold - stable) / (most - threshold);
        let (state, found) = (None, Vec::new());
        Self {
            limit,
            period,
            warm,
            stable,
            threshold,
            most,
            slope,
            own,
            state,
            last: 0,
            reserved: false,
            found,
        }
    }

    fn at(&self, now: i128) -> (f64, i128) {
        match self.state {
            None => (self.most, now),
            Some((stored, next)) if now > next => (self.filled(stored, now - next), now),
            Some(state) => state,
        }
    }

    fn filled(&self, stored: f64, time: i128) -> f64 {
        self.most.min(stored + time as f64 / (self.warm / self.most))
    }

    /// The store and the instant at which so many units are in it, less the room for rounding.
    fn storing(&self, (stored, next): (f64, i128), units: i128) -> (f64, i128) {
        let lacks = self.most.min(units as f64) - stored;
        let time = (lacks * (self.warm / self.most) - 0.001).ceil().max(0.0) as i128;
        (self.filled(stored, time), next + time)
    }

    /// The interval when `above` permits are stored above the threshold.
    fn interval(&self, above: f64) -> f64 {
        self.stable + above * self.slope
    }

    fn price(&self, stored: f64, cost: i128) -> i128 {
        let from_store = stored.min(cost as f64);
        let above = stored - self.threshold;
        let (mut micros, mut cheap) = (0, from_store);
        if above > 0.0 {
            let dear = above.min(from_store);
            let lengths = self.interval(above) + self.interval(above - dear);
            micros = (dear * lengths / 2.0) as i128;
            cheap = from_store - dear;
        }
        let fresh = cost as f64 - from_store;
        micros + (self.stable * cheap) as i128 + (fresh * self.stable) as i128
    }

    fn mark((stored, next): (f64, i128)) -> Mark {
        [next, i128::from(stored.to_bits())]
    }
}

impl Model for Warm {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        let (stored, next) = self.at(now);
        let own = if self.own { self.price(stored, cost) } else { 0 };
        Some((next + own).max(now))
    }

    /// At the stable pace, cut three times.
    fn least_wait(&self, cost: i128) -> i128 {
        if self.own { (self.stable * cost as f64) as i128 - 3 } else { 0 }
    }

    /// The units of the charge and the kept ones are stored before it goes.
    fn earliest_keeping(&self, now: i128, cost: i128, kept: i128) -> Option<i128> {
        if kept == 0 {
            return self.earliest(now, cost);
        }
        let (stored, next) = self.storing(self.at(now), cost + kept);
        let own = if self.own { self.price(stored, cost) } else { 0 };
        ((cost + kept) as f64 <= (self.most + 1e-6).floor()).then_some(next + own)
    }

    fn take(&mut self, now: i128, at: i128, cost: i128) -> Mark {
        self.take_keeping(now, at, cost, 0)
    }

    /// Nothing is stored while it waits for the end of a pause.
    fn take_keeping(&mut self, now: i128, at: i128, cost: i128, kept: i128) -> Mark {
        self.reserved |= at > now;
        let before = self.at(now);
        let (stored, next) = match kept {
            0 => before,
            _ => self.storing(before, cost + kept),
        };
        let price = self.price(stored, cost);
        let late = (at - next - if self.own { price } else { 0 }).max(0);
        let after = (stored - stored.min(cost as f64), next + late + price);
        self.found.push((Self::mark(after), before));
        (self.state, self.last) = (Some(after), now);
        Self::mark(after)
    }

    fn returnable(&self, _now: i128, cost: i128, mark: Mark) -> i128 {
        if self.state.map(Self::mark) == Some(mark) { cost } else { 0 }
    }

    fn put_back(&mut self, mark: Mark, units: i128) {
        let found = self.found.iter().rev().find(|(after, _)| *after == mark);
        if let Some((_, before)) = found.filter(|_| units > 0) {
            self.state = Some(*before);
        }
    }

    /// As if the time of the units at the stable pace had passed.
    fn grant(&mut self, now: i128, units: i128) {
        if self.state.is_some() {
            let (stored, next) = self.at(now);
            let time = (units as f64 * self.stable) as i128;
            let stored = self.filled(stored, (time - (next - now)).max(0));
            (self.state, self.last) = (Some((stored, (next - time).max(now))), now);
        }
    }

    fn remaining(&self, now: i128) -> i128 {
        match self.at(now) {
            (stored, next) if next <= now && !self.own => {
                // By a factor of 3, the permits of the warm-up at the stable pace.
                let whole = self.warm as i128 * self.limit / self.period;
                let lost = (whole as f64 - self.most).max(0.0);
                ((stored + lost).floor() as i128).max(1)
            }
            _ => 0,
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        let (stored, next) = self.at(now);
        let cooling = (self.most - stored) * (self.warm / self.most);
        (next - now).max(0) + cooling.ceil() as i128
    }

    /// `stored:next:r/p:last`.
    fn is_stored_as(&self, text: &str) -> bool {
        let Some((stored, next)) = self.state else { return false };
        let mut parts = text.split(':');
        let told = parts.next().and_then(|told| told.parse::<f64>().ok());
        let rate = parts.nth(1).and_then(|rate| rate.split_once('/'));
        let same = rate.is_some_and(|(r, p)| {
            let [Ok(r), Ok(p)] = [r, p].map(str::parse::<i128>) else { return false };
            r * self.period == p * self.limit
        });
        let (head, tail) = (format!(":{next}:"), format!(":{}", self.last));
        told == Some(stored) && same && text.contains(&head) && text.ends_with(&tail)
    }

    /// Never a burst: grants are as far apart as what lies between them takes, less the
    /// floors of each step.
    fn excess(&self, grants: &[Grant]) -> usize {
        let (mut sum, mut least, mut excess) = (0, i128::MAX, 0);
        for (step, (at, cost)) in grants.iter().enumerate() {
            sum += if self.own { *cost } else { 0 };
            let reached = self.period * sum - self.limit * (at + 3 * step as i128);
            excess += usize::from(least != i128::MAX && reached > least);
            least = least.min(reached);
            sum += if self.own { 0 } else { *cost };
        }
        excess
    }

    /// Leaves out the cost of the warm-up, and counts only where reservations follow one another: a
    /// late caller finds nothing stored that is cheaper, so time without a waiter is lost.
    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        if !self.reserved {
            return (first..first, 0);
        }
        let time = last - first - self.warm as i128 / 2;
        (first..last, (time * self.limit / self.period).max(0))
    }
}
