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
    /// The state in this rule's cells: units that lie in others move to the cell of their last instant.
    pub(super) fn under(&self, state: Option<&State>) -> Option<State> {
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
        Some(State { width: self.width, newest, units })
    }

    /// The units in the cells that count in cell `at`, which is no earlier than the newest.
    pub(super) fn sum(&self, state: &State, at: i64) -> i64 {
        (0..=self.cells - (at - state.newest)).map(|back| state.units_at(back)).sum()
    }

    /// The instant from which on nothing of the state counts any more.
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
}

impl State {
    /// The units of the cell so many places before the newest one.
    pub(super) fn units_at(&self, back: i64) -> i64 {
        let place = self.units.len() as i64 - 1 - back;
        usize::try_from(place).ok().and_then(|place| self.units.get(place)).copied().unwrap_or(0)
    }
}
