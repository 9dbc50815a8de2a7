//! The two windows that are stored, as a rule reads them.

/// `limit` units in each `period`. Up to `most` units are computed exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) limit: i64,
    pub(super) period: i64,
    pub(super) horizon: i64,
    pub(super) most: i64,
}

impl Rule {
    /// The start of the window that holds `at`.
    pub(super) fn begin(&self, at: i64) -> i64 {
        at - at % self.period
    }

    /// The state in this rule's windows.
    pub(super) fn rebase(&self, state: Option<&State>) -> Option<State> {
        let state = state?;
        let begin = self.begin(state.latest);
        let before = self.begin((state.begin - 1).max(0));
        let (mut current, mut previous) = (state.current, 0);
        if before == begin {
            current += state.previous;
        } else if before == begin - self.period {
            previous = state.previous;
        }
        Some(State {
            begin,
            current: current.min(self.most),
            previous: previous.min(self.most),
            latest: state.latest,
            from: [0; 3],
        })
    }

    /// The units of the window that begins at `begin`, and of the one before it.
    pub(super) fn units(&self, state: &State, begin: i64) -> (i64, i64) {
        if begin == state.begin {
            return (state.current, state.previous);
        } else if begin == state.begin + self.period {
            return (0, state.current);
        }
        (0, 0)
    }

    /// The units that count at `at`. Those of the window before are weighed by the share of it that
    /// still counts, rounded up.
    pub(super) fn used(&self, state: &State, at: i64) -> i64 {
        let begin = self.begin(at);
        let (current, previous) = self.units(state, begin);
        let weighted = previous * (self.period - (at - begin));
        current + weighted / self.period + i64::from(weighted % self.period > 0)
    }

    /// The instant from which on no unit of the state counts.
    pub(super) fn end(&self, state: &State) -> i64 {
        if state.current > 0 {
            return state.begin + 2 * self.period;
        } else if state.previous > 0 {
            return state.begin + self.period;
        }
        state.latest
    }
}

/// The latest window that holds units, its units and those of the one before, and the latest
/// instant of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) begin: i64,
    pub(super) current: i64,
    pub(super) previous: i64,
    pub(super) latest: i64,
    /// For a refund of the charge that wrote this state as a member of a tuple: the latest instant
    /// before, as a mark holds it, and the units.
    pub(super) from: [i64; 3],
}
