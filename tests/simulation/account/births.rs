//! What is of before a reset: the store numbers the lives of a key, and a settlement of an earlier
//! life does nothing in a later one.

use tower_sluice::algorithm::Algorithm as _;

use super::{Charge, List, Op, State, Works, keep, state_of};

/// The number of the last reset of each of a charge's keys.
pub(super) fn births(charge: &Charge, works: &Works) -> Vec<i64> {
    charge.keys.iter().map(|key| works[key].standing.birth).collect()
}

/// True if the key at `place` is not the one that was charged. A key without a birth may have
/// expired since, which ends no debt: what was used beyond the charge is taken. But it holds
/// nothing of that charge, even if the server has lost the key and other charges made it anew.
pub(super) fn is_other(charge: &Charge, place: usize, born: i64, works: &Works) -> bool {
    let birth = works[&charge.keys[place]].standing.birth;
    let ends_no_debt = match charge.op {
        Op::Settle { used, cost, .. } => {
            used > cost && !List::holds(&vec![charge.rule[place].clone()])
        }
        Op::Renew { .. } => false,
        _ => true,
    };
    birth != born && (birth > 0 || !ends_no_debt)
}

/// The same of any of a charge's keys.
pub(super) fn is_any_other(charge: &Charge, born: &[i64], works: &Works) -> bool {
    born.iter().enumerate().any(|(place, born)| is_other(charge, place, *born, works))
}

/// Keeps the states of those keys that were not reset since they were charged.
pub(super) fn keep_born(
    charge: &Charge,
    state: Option<State>,
    born: Option<&[i64]>,
    is_changed: bool,
    works: &mut Works,
) {
    let (mut state, before) = (state.unwrap_or_default(), state_of(charge, works));
    state.resize(charge.keys.len(), None);
    let before = before.unwrap_or_default().into_iter();
    for (place, (state, before)) in state.iter_mut().zip(before).enumerate() {
        if born.is_some_and(|born| is_other(charge, place, born[place], works)) {
            *state = before;
        }
    }
    keep(charge, Some(state), is_changed, works);
}

/// The states of a charge's keys; of those that were reset since they were charged, none.
pub(super) fn state_born(charge: &Charge, born: &[i64], works: &Works) -> Option<State> {
    let mut state = state_of(charge, works)?;
    for (place, (state, born)) in state.iter_mut().zip(born).enumerate() {
        if is_other(charge, place, *born, works) {
            *state = None;
        }
    }
    Some(state)
}
