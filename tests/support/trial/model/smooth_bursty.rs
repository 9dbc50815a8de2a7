//! Smooth bursty, by one instant of debt: in units of `1/r` µs, the time up to which everything
//! that was taken is paid. What is stored is how far that instant lies behind.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, ceil, numbers};

/// `r` permits take `p` µs; `cap` is stored, in `1/r` µs.
#[derive(Clone, Debug)]
pub struct Bursty {
    r: i128,
    p: i128,
    cap: i128,
    own: bool,
    /// The instant of debt, and the one from which no charge waits; none before the first charge.
    state: Option<[i128; 2]>,
    last: i128,
    /// The state that each charge found, by the one that it left.
    found: Vec<([i128; 2], [i128; 2])>,
}

impl Bursty {
    /// Stores the permits of one period.
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota, false))
    }

    pub fn wait_for_own_cost(quota: Quota) -> Box<dyn Model> {
        Box::new(Self::new(quota, true))
    }

    fn new(quota: Quota, own: bool) -> Self {
        let (limit, period, _) = numbers(quota);
        let divisor = (1..=limit).rev().find(|d| limit % d == 0 && period % d == 0).unwrap_or(1);
        let (r, p) = (limit / divisor, period / divisor);
        Self { r, p, cap: period * r, own, state: None, last: 0, found: Vec::new() }
    }

    /// The debt and next, at `now`.
    fn at(&self, now: i128) -> [i128; 2] {
        match self.state {
            None => [now * self.r - self.cap, now],
            Some([debt, next]) if now > next => [debt.max(now * self.r - self.cap), now],
            Some(state) => state,
        }
    }

    /// The instant from `now` on at which so many units are stored, in 1/r µs.
    fn stored(&self, now: i128, units: i128) -> i128 {
        let [debt, next] = self.at(now);
        let at = debt + units;
        next.max(if self.own { at.div_euclid(self.r) } else { ceil(at, self.r) })
    }

    fn after(&self, [debt, next]: [i128; 2], cost: i128) -> [i128; 2] {
        let debt = debt + cost * self.p;
        [debt, next.max(debt.div_euclid(self.r))]
    }
}

impl Model for Bursty {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        let state = self.at(now);
        let next = if self.own { self.after(state, cost)[1] } else { state[1] };
        Some(next.max(now))
    }

    fn least_wait(&self, cost: i128) -> i128 {
        let lacking = if self.own { cost * self.p - self.cap } else { 0 };
        lacking.max(0).div_euclid(self.r)
    }

    /// The units of the charge and the kept ones are stored before it goes.
    fn earliest_keeping(&self, now: i128, cost: i128, kept: i128) -> Option<i128> {
        if kept == 0 {
            return self.earliest(now, cost);
        }
        let units = (cost + kept) * self.p;
        let lacks = units - self.cap;
        (lacks <= if self.own { self.r - 1 } else { 0 }).then(|| self.stored(now, units))
    }

    fn take(&mut self, now: i128, at: i128, cost: i128) -> Mark {
        self.take_keeping(now, at, cost, 0)
    }

    /// Nothing is stored while it waits for the end of a pause.
    fn take_keeping(&mut self, now: i128, at: i128, cost: i128, kept: i128) -> Mark {
        let before = self.at(now);
        let [debt, mut next] = before;
        if kept > 0 {
            next = self.stored(now, (cost + kept) * self.p);
        }
        let [debt, paid] = self.after([debt.max(next * self.r - self.cap), next], cost);
        let late = (at - if self.own { paid } else { next }).max(0);
        let after = [debt + late * self.r, paid + late];
        self.found.push((after, before));
        (self.state, self.last) = (Some(after), now);
        after
    }

    fn returnable(&self, _now: i128, cost: i128, mark: Mark) -> i128 {
        if self.state == Some(mark) { cost } else { 0 }
    }

    fn put_back(&mut self, mark: Mark, units: i128) {
        let found = self.found.iter().rev().find(|(after, _)| *after == mark);
        if let Some((_, before)) = found.filter(|_| units > 0) {
            self.state = Some(*before);
        }
    }

    /// As if the time of the units had passed.
    fn grant(&mut self, now: i128, units: i128) {
        if self.state.is_some() {
            let [debt, next] = self.at(now);
            let next = (next - (units * self.p).div_euclid(self.r)).max(now);
            let debt = (debt - units * self.p).max(next * self.r - self.cap);
            (self.state, self.last) = (Some([debt, next]), now);
        }
    }

    fn remaining(&self, now: i128) -> i128 {
        let [debt, next] = self.at(now);
        let credit = next * self.r - debt;
        match (next > now, self.own) {
            (true, _) => 0,
            (false, true) => (credit + self.r - 1).div_euclid(self.p).max(0),
            (false, false) => credit.div_euclid(self.p).max(1),
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        ceil(self.at(now)[0] + self.cap, self.r) - now
    }

    /// `credit:next:r/p:last`.
    fn is_stored_as(&self, text: &str) -> bool {
        let Some([debt, next]) = self.state else { return false };
        let credit = next * self.r - debt;
        text == format!("{credit}:{next}:{}/{}:{}", self.r, self.p, self.last)
    }

    /// Units that are taken from a grant up to another are stored or have grown since; with own
    /// debt up to and with that one.
    fn excess(&self, grants: &[Grant]) -> usize {
        let (mut sum, mut least, mut excess) = (0, i128::MAX, 0);
        for (at, cost) in grants {
            let begin = self.p * sum - self.r * at;
            let room = if self.own { self.cap.max(cost * self.p) } else { self.cap };
            if self.own {
                sum += cost;
                least = least.min(begin + room);
                excess += usize::from(self.p * sum - self.r * at > least + self.r);
            } else {
                excess += usize::from(least != i128::MAX && begin > least + self.r);
                least = least.min(begin + room);
                sum += cost;
            }
        }
        excess
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        (first..last, ((last - first) * self.r + self.cap) / self.p)
    }
}
