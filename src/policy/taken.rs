//! What a request took under its policies, and who settles it.

use std::sync::Arc;

use super::table::{Armed, Together};
use crate::Reservation;
use crate::algorithm::AnyAlgorithm;
use crate::limiter::Limiter;
use crate::limiter::memory;

/// The limiter that made a reservation.
#[derive(Clone)]
pub(super) enum Settler {
    Gate(Arc<Armed>),
    /// The share of this process.
    Local(Arc<Armed>),
    Together(Together),
    LocalTogether(Arc<memory::Together<AnyAlgorithm>>),
}

/// What was taken, each with the limiter that settles it.
///
/// Dropped, it is given back: a charge that one policy refuses takes nothing of the others.
#[derive(Default)]
pub(super) struct Taken(Vec<(Settler, Reservation)>);

impl Taken {
    pub(super) fn add(&mut self, settler: Settler, reservation: Option<Reservation>) {
        self.0.extend(reservation.map(|reservation| (settler, reservation)));
    }

    pub(super) fn extend(&mut self, mut other: Taken) {
        self.0.append(&mut other.0);
    }

    /// What stays taken, unless it is settled. `None` if nothing was taken.
    pub(super) fn kept(mut self) -> Option<Kept> {
        Some(Kept(std::mem::take(&mut self.0))).filter(|kept| !kept.0.is_empty())
    }
}

/// What an admitted request took.
pub(super) struct Kept(Vec<(Settler, Reservation)>);

impl Kept {
    /// Settles a charge of `cost` units that cost `actual` in the end. What has another cost is
    /// given back as a whole, or kept.
    pub(super) fn settle(self, cost: u64, actual: u64) {
        for (settler, reservation) in self.0.into_iter().rev() {
            let own = reservation.cost();
            let actual = match &settler {
                Settler::Gate(_) | Settler::Local(_) if own == cost => actual.min(cost),
                _ if actual == 0 => 0,
                _ => own,
            };
            if actual != own {
                settler.settle(reservation, actual);
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (settler, reservation) in self.0.drain(..).rev() {
            settler.settle(reservation, 0);
        }
    }
}

impl Settler {
    /// Best effort, as every settlement is.
    fn settle(&self, reservation: Reservation, actual: u64) {
        let _ = match self {
            Self::Gate(armed) => armed.gate.settle(reservation, actual),
            Self::Local(armed) => match &armed.local {
                Some(local) => local.settle(reservation, actual),
                None => Err(reservation),
            },
            Self::Together(Together::Memory(together)) => together.refund(reservation),
            #[cfg(feature = "redis")]
            Self::Together(Together::Redis(together)) => together.joined().settle(reservation, 0),
            Self::LocalTogether(together) => together.refund(reservation),
        };
    }
}
