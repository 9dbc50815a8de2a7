//! The admissions, by the time that truly passes: steps of the clock forward count, steps back do
//! not.

use tower_sluice::algorithm::{Algorithm, Mark};

use super::kinds::Kind;
use support::trial::model::{Grant, over_any_window};

/// An admission, at its slot.
#[derive(Clone, Debug)]
pub struct Booking {
    pub decided: i64,
    pub slot: i64,
    pub cost: i64,
    /// The units that its caller uses of it, or may still use.
    pub used: i64,
    /// True if its slot had not come when the clock was set back too far to remember it.
    pub is_forgotten: bool,
    /// True if it may be held still, and counts as spent once its time is over.
    pub is_held: bool,
    /// Kept until it is refunded or settled.
    pub mark: Option<Mark>,
}

#[derive(Clone, Debug, Default)]
pub struct Book {
    pub bookings: Vec<Booking>,
    /// The settlements in time: the instant of each, and its units.
    pub settled: Vec<(i64, i64)>,
}

impl Book {
    /// The latest slot that is in use.
    pub fn latest(&self) -> Option<i64> {
        self.bookings.iter().filter(|one| one.used > 0).map(|one| one.slot).max()
    }

    /// The first bound that a window breaks.
    pub fn over<A: Algorithm>(
        &self,
        kind: &Kind<A>,
        went_back: bool,
        passed: i64,
    ) -> Option<String> {
        for bound in &kind.bounds {
            if let Some(max_hold) = bound.at_once {
                let held = self.bookings.iter();
                let held = held.filter(|one| one.mark.is_some() && passed - one.decided < max_hold);
                let units: i64 = held.map(|one| one.cost).sum();
                if units > bound.quota.limit().cast_signed() {
                    return Some(format!("{units} units are held at once"));
                }
                continue;
            }
            let counted: Vec<_> = match bound.max_hold {
                Some(_) => self.settled.clone(),
                None => {
                    let counts = |one: &&Booking| !(bound.forgets_slots && one.is_forgotten);
                    let admitted = self.bookings.iter().filter(counts);
                    admitted.map(|one| (one.slot, one.used)).collect()
                }
            };
            let mut grants: Vec<Grant> = counted
                .into_iter()
                .filter(|(_, units)| *units > 0)
                .map(|(at, units)| (i128::from(at), i128::from(units)))
                .collect();
            grants.sort_by_key(|grant| grant.0);
            let excess = match bound.any_period.filter(|_| went_back) {
                Some((times, less)) => {
                    let limit = times * i128::from(bound.quota.limit()) - less;
                    let period = bound.quota.period().as_micros().cast_signed();
                    over_any_window(&grants, period, limit)
                }
                None => bound.model().excess(&grants),
            };
            if excess > 0 {
                return Some(format!("{:?} is exceeded by {grants:?}", bound.quota));
            }
        }
        None
    }
}
