//! What is of before a reset: the store numbers the lives of a key, and a settlement of an earlier
//! life does nothing in a later one.

use super::{Charge, State, Works, keep, state_of};

/// The number of the last reset of each of a charge's keys.
pub(super) fn births(charge: &Charge, works: &Works) -> Vec<i64> {
    charge.keys.iter().map(|key| works[key].standing.birth).collect()
}

/// True if a key of this birth is not the one that was charged. A key without a birth may have
/// expired since, which ends no debt: what was used beyond the charge is taken.
fn is_other(birth: i64, born: i64, is_more: bool) -> bool {
    birth != born && (birth > 0 || !is_more)
}

/// The same of any of a charge's keys.
pub(super) fn is_any_other(charge: &Charge, born: &[i64], is_more: bool, works: &Works) -> bool {
    births(charge, works).iter().zip(born).any(|(birth, born)| is_other(*birth, *born, is_more))
}

/// Keeps the states of those keys that were not reset since they were charged.
pub(super) fn keep_born(
    charge: &Charge,
    state: Option<State>,
    (born, is_more): (Option<&[i64]>, bool),
    is_changed: bool,
    works: &mut Works,
) {
    let (mut state, before) = (state.unwrap_or_default(), state_of(charge, works));
    state.resize(charge.keys.len(), None);
    let before = before.unwrap_or_default().into_iter();
    let same = births(charge, works);
    let is_same = |(place, birth): (usize, &i64)| {
        born.is_none_or(|born| !is_other(*birth, born[place], is_more))
    };
    let same = same.iter().enumerate().map(is_same);
    for ((state, before), is_same) in state.iter_mut().zip(before).zip(same) {
        if !is_same {
            *state = before;
        }
    }
    keep(charge, Some(state), is_changed, works);
}

/// The states of a charge's keys; of those that were reset since they were charged, none.
pub(super) fn state_born(
    charge: &Charge,
    born: &[i64],
    is_more: bool,
    works: &Works,
) -> Option<State> {
    let mut state = state_of(charge, works)?;
    for ((state, own), birth) in state.iter_mut().zip(births(charge, works)).zip(born) {
        if is_other(own, *birth, is_more) {
            *state = None;
        }
    }
    Some(state)
}
