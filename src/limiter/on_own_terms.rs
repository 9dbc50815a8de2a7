//! Several charges as one, of which each keeps its cost and its longest wait.

use super::named::{ReservationPayload, micros, units};
use crate::Charge;
use crate::algorithm::Mark;
use crate::charge::Key;
use crate::quota::{CostAndWait, Quotas};

/// The charge of all, for a list of algorithms with these quotas: it asks for the most units, and
/// may wait longest.
pub(super) fn whole(charges: &[Charge], quotas: &Quotas) -> Charge {
    let stated = charges.iter().map(|charge| CostAndWait {
        cost: units(charge.get_cost()),
        max_wait: micros(charge.get_max_wait().unwrap_or_default()),
    });
    let with_costs = Quotas::with_costs(quotas.as_slice().iter().copied().zip(stated));
    let cost = charges.iter().map(Charge::get_cost).max().unwrap_or(1);
    let max_wait = charges.iter().filter_map(Charge::get_max_wait).max();
    charges[0].clone().cost(cost).max_wait(max_wait.unwrap_or_default()).quota(with_costs)
}

/// Returns the part of one of the members: its units, and what the member alone settles it by.
pub(super) fn member_of(
    quotas: &Quotas,
    mark: &Mark,
    index: usize,
    key: Key,
) -> Option<(u64, ReservationPayload)> {
    let own = quotas.nth(index)?;
    let (quota, mark) = (own.one().ok()?.into(), mark.of(index));
    Some((own.cost_and_wait().cost.cast_unsigned(), ReservationPayload { key, quota, mark }))
}
