//! The units that a request took under its policies, and their settlement.

use std::sync::Arc;

use super::armed::Armed;
use super::combinations::Together;
use crate::Reservation;
use crate::limiter::Limiter;
use crate::settlement::Settlement;

/// The limiter that made a reservation.
#[derive(Clone)]
pub(super) enum Settler {
    Gate(Arc<Armed>),
    /// The share of this process.
    Local(Arc<Armed>),
    Together(Together),
}

/// The reservations of a request, each with the limiter that settles it.
///
/// If it is dropped, it gives them back: a charge that one policy refuses takes nothing from the
/// others.
#[derive(Default)]
pub(super) struct Taken(Vec<(Settler, Reservation)>);

impl Taken {
    pub(super) fn add(&mut self, settler: Settler, reservation: Option<Reservation>) {
        self.0.extend(reservation.map(|reservation| (settler, reservation)));
    }

    pub(super) fn extend(&mut self, mut other: Taken) {
        self.0.append(&mut other.0);
    }

    /// Returns the reservations, which stay taken unless they are settled. `None` if nothing was
    /// taken.
    pub(super) fn kept(mut self) -> Option<Kept> {
        Some(Kept(std::mem::take(&mut self.0))).filter(|kept| !kept.0.is_empty())
    }
}

/// The reservations of an admitted request.
pub(super) struct Kept(Vec<(Settler, Reservation)>);

impl Kept {
    /// Returns whether some of the units are held until they are settled.
    pub(super) fn is_held(&self) -> bool {
        self.0.iter().any(|(_, reservation)| reservation.is_held())
    }

    /// Settles a charge of `cost` units that cost `actual` in the end.
    pub(super) fn settle(self, cost: u64, actual: u64) -> Settlement {
        let settle = |(settler, reservation): (Settler, Reservation)| {
            // Best effort: units that no limiter can settle stay taken.
            settler.settle(reservation, |own| in_proportion(own, cost, actual)).ok()
        };
        Settlement::all(self.0.into_iter().rev().filter_map(settle))
    }
}

/// Returns the units that are in the same proportion to `own` as `actual` is to `cost`, rounded up.
fn in_proportion(own: u64, cost: u64, actual: u64) -> u64 {
    let units = u128::from(own) * u128::from(actual);
    u64::try_from(units.div_ceil(u128::from(cost.max(1)))).unwrap_or(u64::MAX)
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (settler, reservation) in self.0.drain(..).rev() {
            // Best effort, as every settlement is.
            let _ = settler.settle(reservation, |_| 0);
        }
    }
}

impl Settler {
    /// Settles a reservation. `actual` maps the units of each policy to the units that were used.
    fn settle(
        &self,
        reservation: Reservation,
        actual: impl Fn(u64) -> u64,
    ) -> Result<Settlement, Reservation> {
        let own = actual(reservation.cost());
        match self {
            Self::Gate(armed) => armed.gate.settle(reservation, own),
            Self::Local(armed) => match &armed.share {
                Some(share) => share.limiter.settle(reservation, own),
                None => Err(reservation),
            },
            Self::Together(Together::Memory(together)) => together.settle(reservation, actual),
            #[cfg(feature = "redis")]
            Self::Together(Together::Redis(together)) => together.settle(reservation, actual),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_changes_in_the_same_proportion() {
        for ((own, cost, actual), units) in [
            ((1, 1, 7), 7),
            ((3, 1, 7), 21),
            ((3, 3, 0), 0),
            ((10, 4, 1), 3),
            ((1, 10, 4), 1),
            ((1, 10, 11), 2),
            ((0, 1, 5), 0),
            ((u64::MAX, 1, u64::MAX), u64::MAX),
        ] {
            assert_eq!(in_proportion(own, cost, actual), units);
        }
    }
}
