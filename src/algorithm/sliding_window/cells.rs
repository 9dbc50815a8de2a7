//! The cells that are stored, as a rule reads them.

/// `limit` units in `cells` cells of `width` µs, and one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) limit: i64,
    pub(super) width: i64,
    pub(super) cells: i64,
    pub(super) horizon: i64,
}

impl Rule {
    /// The state in this rule's cells: units counted in cells of another width move to the cell of
    /// their last instant.
    pub(super) fn rebase(&self, state: Option<&State>) -> Option<State> {
        let state = state?;
        if state.width == self.width && state.units.len() as i64 == self.cells + 1 {
            return Some(state.clone());
        }
        let cell_of = |cell: i64| ((cell + 1) * state.width - 1).div_euclid(self.width);
        let newest = cell_of(state.newest);
        let mut units = vec![0; self.cells as usize + 1];
        for back in 0..state.units.len() as i64 {
            let place = self.cells - (newest - cell_of(state.newest - back));
            if place >= 0 {
                units[place as usize] += state.units_at(back);
            }
        }
        Some(State::of(self.width, newest, units))
    }

    /// The units in the cells that count in cell `at`, which is no earlier than the newest.
    pub(super) fn sum(&self, state: &State, at: i64) -> i64 {
        (0..=self.cells - (at - state.newest)).map(|back| state.units_at(back)).sum()
    }

    /// The units of the state in the cells from `first` to `last`; nothing if there are none.
    pub(super) fn listed(&self, state: &State, first: i64, last: i64) -> Vec<i64> {
        let units = (first..=last).map(|cell| state.units_at(state.newest - cell));
        let units: Vec<_> = units.collect();
        if units.iter().sum::<i64>() > 0 { units } else { Vec::new() }
    }

    /// The last cell that a charge removed when it moved the newest cell from `from` to `newest`.
    pub(super) fn last_pushed(&self, newest: i64, from: i64) -> i64 {
        (newest - self.cells - 1).min(from)
    }

    /// The state before the charge that moved the newest cell on from `from`.
    pub(super) fn restored(&self, state: &State, from: i64, old: &[i64]) -> State {
        let last = self.last_pushed(state.newest, from);
        let units = (from - self.cells..=from).map(|cell| {
            if cell >= state.newest - self.cells {
                return state.units_at(state.newest - cell);
            }
            let place = cell - last + old.len() as i64 - 1;
            usize::try_from(place).ok().and_then(|place| old.get(place)).copied().unwrap_or(0)
        });
        State::of(state.width, from, units.collect())
    }

    /// The units in the cells after `cell`.
    pub(super) fn after(&self, state: &State, cell: i64) -> i64 {
        (0..(state.newest - cell).min(self.cells + 1)).map(|back| state.units_at(back)).sum()
    }

    /// The instant from which on no unit of the state counts.
    pub(super) fn end(&self, state: &State) -> i64 {
        match (0..=self.cells).find(|back| state.units_at(*back) > 0) {
            Some(back) => (state.newest - back + self.cells + 1) * self.width,
            None => state.newest * self.width,
        }
    }
}

/// The newest cell, and the units of the cells up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) width: i64,
    pub(super) newest: i64,
    pub(super) units: Vec<i64>,
    /// For a refund of the wait that wrote this state as a member of a tuple: the newest cell
    /// before, as a mark holds it, and the units of cells that count still, but not in the period
    /// of the newest.
    pub(super) from: i64,
    pub(super) pushed: Vec<i64>,
}

impl State {
    pub(super) fn of(width: i64, newest: i64, units: Vec<i64>) -> Self {
        Self { width, newest, units, from: 0, pushed: Vec::new() }
    }

    /// The units of the cell that is `back` cells before the newest one.
    pub(super) fn units_at(&self, back: i64) -> i64 {
        let place = self.units.len() as i64 - 1 - back;
        usize::try_from(place).ok().and_then(|place| self.units.get(place)).copied().unwrap_or(0)
    }
}
