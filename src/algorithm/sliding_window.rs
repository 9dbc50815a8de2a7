//! Sliding window by cells: no window of a period, wherever it begins, holds more than the limit.
//!
//! A charge fits if the cells of a whole period and one more cell leave room for it. Because of
//! that extra cell, the bound holds for every window, not only for those that start with a cell.
//!
//! The twin of `scripts/sliding_window.lua`.

use std::time::Duration;

use super::in_lua::{integer, integers, listed};
use super::{
    Algorithm, Check, DEFAULT_HORIZON, Element, INEXACT, InLua, Mark, NO_STATE, Refund, Report,
    Take, exact, micros, without_burst,
};
use crate::core::quota::{Quota, QuotaError, Quotas};

/// Counts units in cells of the period: exact over every window, at a fixed size.
///
/// **Bound.** At most `limit` units in any stretch of a period. At least `cells / (cells + 1)` of
/// the throughput is reached, but for periods of a few microseconds a cell: a cell has whole ones.
///
/// **Cost.** A count for each cell: 197 bytes in Redis with 10 cells; 25 µs of script time alone,
/// 9.6 in a batch of 64.
///
/// **Choose it** if a large limit must hold over every window, and a log would be too long.
///
/// **Timeline.** Five a second in ten cells: units that were taken in the first cell are free again
/// 1.1 s after that cell began: a period and a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SlidingWindow {
    quota: Quota,
    horizon: Duration,
    cells: u8,
}

impl SlidingWindow {
    /// A window that admits the quota's limit in any stretch of its period.
    ///
    /// A window has no burst: a quota whose burst differs from its limit is an error when the
    /// limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self { quota, horizon: DEFAULT_HORIZON, cells: 10 }
    }

    /// Sets the number of cells of a period. With more cells, the throughput comes closer to the
    /// limit. 0 counts as 1, and more than 60 as 60. Default: 10.
    pub const fn cells(self, cells: u8) -> Self {
        let cells = if cells == 0 { 1 } else { cells };
        Self { cells: if cells > 60 { 60 } else { cells }, ..self }
    }

    horizon_setter! {
        /// A charge with a longer `max_wait` waits at most this long.
    }
}

/// `limit` units in `cells` cells of `width` µs and one more cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    limit: i64,
    width: i64,
    cells: i64,
    horizon: i64,
}

impl Rule {
    /// Converts the state to this rule's cells. Units of a cell of another width move to the cell
    /// of the last instant at which they can have been admitted. In a cell that has not begun, that
    /// is its begin.
    fn rebase(&self, state: Option<&State>, now: i64) -> Option<State> {
        let state = state?;
        if state.width == self.width && state.units.len() as i64 == self.cells + 1 {
            return Some(state.clone());
        }
        let cell_of = |cell: i64| {
            let begin = cell * state.width;
            (begin + state.width - 1).min(begin.max(now)).div_euclid(self.width)
        };
        let newest = cell_of(state.newest);
        let mut units = vec![0; self.cells as usize + 1];
        for back in 0..state.units.len() as i64 {
            let place = self.cells - (newest - cell_of(state.newest - back));
            if place >= 0 {
                units[place as usize] += state.units_at(back);
            }
        }
        Some(State { width: self.width, newest, units })
    }

    /// The units of the cells that count in cell `at`, which is not earlier than the newest.
    fn sum(&self, state: &State, at: i64) -> i64 {
        (0..=self.cells - (at - state.newest)).map(|back| state.units_at(back)).sum()
    }

    /// The units of the state in the cells from `first` to `last`; empty if there are no such
    /// cells.
    fn listed(&self, state: &State, first: i64, last: i64) -> Vec<i64> {
        let units = (first..=last).map(|cell| state.units_at(state.newest - cell));
        let units: Vec<_> = units.collect();
        if units.iter().sum::<i64>() > 0 { units } else { Vec::new() }
    }

    /// The last cell that a charge removed when it moved the newest cell from `from` to `newest`.
    fn last_pushed(&self, newest: i64, from: i64) -> i64 {
        (newest - self.cells - 1).min(from)
    }

    /// The state before the charge that moved the newest cell on from `from`.
    fn restored(&self, state: &State, from: i64, old: &[i64]) -> State {
        let last = self.last_pushed(state.newest, from);
        let units = (from - self.cells..=from).map(|cell| {
            if cell >= state.newest - self.cells {
                return state.units_at(state.newest - cell);
            }
            let place = cell - last + old.len() as i64 - 1;
            usize::try_from(place).ok().and_then(|place| old.get(place)).copied().unwrap_or(0)
        });
        State { width: state.width, newest: from, units: units.collect() }
    }

    fn after(&self, state: &State, cell: i64) -> i64 {
        (0..(state.newest - cell).min(self.cells + 1)).map(|back| state.units_at(back)).sum()
    }

    /// The instant at which the last unit of the state stops to count.
    fn end(&self, state: &State) -> i64 {
        match (0..=self.cells).find(|back| state.units_at(*back) > 0) {
            Some(back) => (state.newest - back + self.cells + 1) * self.width,
            None => state.newest * self.width,
        }
    }
}

/// The newest cell, and the units of the cells up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    width: i64,
    newest: i64,
    units: Vec<i64>,
}

impl State {
    /// The units of the cell that is `back` cells before the newest one.
    fn units_at(&self, back: i64) -> i64 {
        let place = self.units.len() as i64 - 1 - back;
        usize::try_from(place).ok().and_then(|place| self.units.get(place)).copied().unwrap_or(0)
    }
}

impl Algorithm for SlidingWindow {
    type Rule = Rule;
    type State = State;

    of_one_quota!();

    fn rule(&self, quota: impl Into<Quotas>) -> Result<Rule, QuotaError> {
        let quota = without_burst(quota, "a window has no burst")?;
        let (period, cells) = (micros(quota.period()), i64::from(self.cells));
        Ok(Rule {
            limit: exact(quota.limit()),
            width: (period + cells - 1) / cells,
            cells,
            horizon: micros(self.horizon),
        })
    }

    fn expires_at(rule: &Rule, state: &State) -> i64 {
        rule.rebase(Some(state), i64::MAX).map_or(0, |state| rule.end(&state))
    }

    fn clamp(rule: &Rule, state: &State, now: i64) -> Option<State> {
        let late = state.newest * state.width > now + rule.horizon;
        late.then(|| Self::spend(rule, None, now, rule.limit, now))
    }

    fn earliest_fit(rule: &Rule, state: Option<&State>, at: i64, cost: i64) -> Option<i64> {
        if cost > rule.limit {
            return None;
        }
        let Some(state) = rule.rebase(state, at) else { return Some(at) };
        let mut cell = at.div_euclid(rule.width).max(state.newest);
        let mut total = rule.sum(&state, cell);
        while total + cost > rule.limit && cell <= state.newest + rule.cells {
            total -= state.units_at(rule.cells - (cell - state.newest));
            cell += 1;
        }
        Some(at.max(cell * rule.width))
    }

    /// With others, the mark of a wait also lists the units of cells that still count, but not in
    /// the period of the newest cell.
    fn consume(rule: &Rule, state: Option<State>, take: Take<'_>) -> (State, Mark) {
        let Take { at, cost, now, has_others, .. } = take;
        let state = rule.rebase(state.as_ref(), now);
        let newest = at.div_euclid(rule.width);
        let before = |back: i64| {
            let state = state.as_ref()?;
            let before = back - (newest - state.newest);
            (before >= 0).then(|| state.units_at(before))
        };
        let mut units: Vec<_> =
            (0..=rule.cells).rev().map(|back| before(back).unwrap_or(0)).collect();
        units[rule.cells as usize] += cost;
        let (from, pushed) = match &state {
            _ if !has_others || at <= now => (0, Vec::new()),
            None => (NO_STATE, Vec::new()),
            Some(state) => {
                let first = now.div_euclid(rule.width).max(state.newest) - rule.cells;
                let last = rule.last_pushed(newest, state.newest);
                (state.newest + 1, rule.listed(state, first, last))
            }
        };
        let mark = Mark::from([newest, rule.width, from, 0]).with_list(pushed.into());
        (State { width: rule.width, newest, units }, mark)
    }

    /// Nothing if more than the limit count already.
    fn penalty(rule: &Rule, state: Option<&State>, now: i64, cost: i64) -> i64 {
        let cell = now.div_euclid(rule.width);
        let used =
            rule.rebase(state, now).map_or(0, |state| rule.sum(&state, cell.max(state.newest)));
        if used > rule.limit { 0 } else { cost.min(rule.limit) }
    }

    /// Gives back the newest units first.
    fn give(rule: &Rule, state: &mut State, now: i64, units: i64) {
        if let Some(own) = rule.rebase(Some(state), now) {
            *state = own;
        }
        let mut left = units;
        for own in state.units.iter_mut().rev() {
            let given = left.min(*own);
            (left, *own) = (left - given, *own - given);
        }
    }

    fn report(rule: &Rule, state: Option<&State>, now: i64) -> Report {
        let Some(state) = rule.rebase(state, now) else { return Report::full(rule.limit) };
        let cell = now.div_euclid(rule.width);
        let remaining = match state.newest <= cell {
            true => (rule.limit - rule.sum(&state, cell)).max(0),
            false => 0,
        };
        Report { remaining, reset_after: (rule.end(&state) - now).max(0) }
    }

    fn apply_refund(rule: &Rule, state: &mut State, now: i64, refund: &Refund<'_>) -> Option<i64> {
        let mut next = rule.rebase(Some(state), now)?;
        let [mark_newest, mark_width, from, _] = refund.mark.first;
        let back = next.newest - mark_newest;
        if next.width != mark_width || back < 0 || back > rule.cells {
            return None;
        }
        if (mark_newest + rule.cells + 1) * rule.width <= now {
            return None;
        }
        // The cells are as the charge wrote them: the cells that it reached by waiting hold no
        // other charge.
        let alone = back == 0 && rule.after(&next, from - 1) == refund.cost;
        if from > 0 && refund.is_whole() && alone {
            *state = rule.restored(&next, from - 1, refund.mark.list(0));
            return Some(refund.units);
        }
        let place = (rule.cells - back) as usize;
        let given = refund.units.min(next.units[place]);
        next.units[place] -= given;
        *state = next;
        Some(given)
    }
}

impl InLua for SlidingWindow {
    const NAME: &'static str = "sliding_window";
    const TAG: &'static str = "sw1";
    const SCRIPT: &'static str = include_str!("../../scripts/sliding_window.lua");

    fn arguments(rule: &Rule, _: i64) -> Vec<i64> {
        vec![rule.horizon, rule.limit, rule.width, rule.cells]
    }

    fn state(
        rule: &Rule,
        _: i64,
        _: Check<'_>,
        reply: &mut &[Element<'_>],
    ) -> Option<Option<State>> {
        let ([newest, list], rest) = reply.split_first_chunk::<2>()?;
        *reply = rest;
        let Element::Number(newest @ 0..) = *newest else { return None };
        if newest == 0 {
            return Some(None);
        }
        let Element::Text(list) = *list else { return None };
        let units: Vec<_> = listed(list)?.into();
        let newest = newest - 1;
        let begin = newest.checked_mul(rule.width);
        let is_possible =
            units.len() == rule.cells as usize + 1 && begin.is_some_and(|begin| begin < INEXACT);
        is_possible.then_some(Some(State { width: rule.width, newest, units }))
    }

    fn stored(_: &Rule, text: &str) -> Option<State> {
        let (cells, list) = text.split_at(text.find(',')?);
        let [width, newest] = integers(cells)?;
        let units: Vec<_> = list[1..].split(',').map(integer).collect::<Option<_>>()?;
        let is_possible = width > 0
            && (2..=61).contains(&units.len())
            && newest.checked_mul(width).is_some_and(|begin| begin < INEXACT);
        is_possible.then_some(State { width, newest, units })
    }
}

#[cfg(test)]
mod tests;
