//! The sliding window by cells, as a count for each cell that was ever used.

use std::collections::BTreeMap;
use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, ceil, numbers, over_any_window};

/// `limit` units in `cells` cells of `width` µs and one more.
#[derive(Clone, Debug)]
pub struct Cells {
    limit: i128,
    period: i128,
    cells: i128,
    width: i128,
    units: BTreeMap<i128, i128>,
}

impl Cells {
    /// Ten cells, as the algorithm has by default.
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        let (limit, period, _) = numbers(quota);
        let width = ceil(period, 10);
        Box::new(Self { limit, period, cells: 10, width, units: BTreeMap::new() })
    }

    fn newest(&self) -> Option<i128> {
        self.units.last_key_value().map(|(cell, _)| *cell)
    }

    fn sum(&self, at: i128) -> i128 {
        self.units.range(at - self.cells..=at).map(|(_, units)| units).sum()
    }
}

impl Model for Cells {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        let current = now.div_euclid(self.width);
        let first = self.newest().map_or(current, |newest| newest.max(current));
        let cell = (first..).find(|cell| self.sum(*cell) + cost <= self.limit);
        cell.map(|cell| now.max(cell * self.width))
    }

    fn take(&mut self, _now: i128, at: i128, cost: i128) -> Mark {
        let cell = at.div_euclid(self.width);
        *self.units.entry(cell).or_default() += cost;
        [cell, 0]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        let kept = self.newest().is_some_and(|newest| newest - mark[0] <= self.cells);
        let alive = (mark[0] + self.cells + 1) * self.width > now;
        self.units.get(&mark[0]).filter(|_| kept && alive).map_or(0, |units| cost.min(*units))
    }

    fn put_back(&mut self, mark: Mark, units: i128) {
        *self.units.entry(mark[0]).or_default() -= units;
    }

    fn grant(&mut self, _now: i128, mut units: i128) {
        let Some(newest) = self.newest() else { return };
        for (_, taken) in self.units.range_mut(newest - self.cells..).rev() {
            let given = units.min(*taken);
            (*taken, units) = (*taken - given, units - given);
        }
    }

    fn remaining(&self, now: i128) -> i128 {
        let current = now.div_euclid(self.width);
        match self.newest() {
            Some(newest) if newest > current => 0,
            _ => (self.limit - self.sum(current)).max(0),
        }
    }

    fn reset_after(&self, now: i128) -> i128 {
        let Some(newest) = self.newest() else { return 0 };
        let last = self.units.range(newest - self.cells..).rev().find(|(_, units)| **units > 0);
        let end = last.map_or(newest, |(cell, _)| cell + self.cells + 1) * self.width;
        (end - now).max(0)
    }

    /// `width:newest,units,..,units`, the oldest cell first.
    fn is_stored_as(&self, text: &str) -> bool {
        let mut parts = text.split(',');
        let Some(newest) = self.newest() else { return false };
        let units: Vec<_> = (newest - self.cells..=newest)
            .map(|cell| self.units.get(&cell).copied().unwrap_or(0).to_string())
            .collect();
        parts.next() == Some(&format!("{}:{newest}", self.width)) && parts.eq(units)
    }

    fn excess(&self, grants: &[Grant]) -> usize {
        over_any_window(grants, self.period, self.limit)
    }

    /// Units that are taken in one cell come back when that cell no longer counts, so as many cells
    /// make a turn.
    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        let turn = (self.cells + 1) * self.width;
        let begin = first.div_euclid(self.width) * self.width;
        let turns = (last - begin) / turn;
        (begin..begin + turns * turn, turns * self.limit)
    }
}
