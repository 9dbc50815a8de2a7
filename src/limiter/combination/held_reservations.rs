//! The reservations of a combination. They are settled together, or given back when one of its
//! limiters refuses.

use std::mem;

use super::at_once::Together;
use super::join_all::join_all;
use crate::core::Charge;
use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::{Renewal, Settlement};
use crate::limiter::{Boxed, Limiter, hold};

/// The limiter, or the group of limiters, that made a reservation.
#[derive(Clone)]
pub(crate) enum By {
    Alone(Boxed),
    AtOnce(Together),
}

pub(crate) struct Held {
    by: By,
    charges: Charges,
    reservation: Reservation,
}

/// The charges of a reservation, in the order in which they were asked.
#[derive(Clone, Copy)]
pub(crate) struct Charges {
    /// A bit for each charge whose cost a settlement of the whole states.
    settled: u8,
    /// The place of each among all parts of the request.
    places: [u16; Together::MAX],
}

#[derive(Default)]
pub(crate) struct HeldReservations(Vec<Held>);

/// The reservations so far. When it is dropped, they are refunded, unless all limiters have
/// admitted.
#[derive(Default)]
pub(crate) struct Tentative(HeldReservations);

impl Charges {
    /// Each charge has the place of its part.
    pub(crate) fn new<'a>(charges: impl IntoIterator<Item = (usize, &'a Charge)>) -> Self {
        let (mut settled, mut places) = (0, [0; Together::MAX]);
        for (index, (place, charge)) in charges.into_iter().take(places.len()).enumerate() {
            settled |= u8::from(charge.is_settled) << index;
            places[index] = u16::try_from(place).unwrap_or(u16::MAX);
        }
        Self { settled, places }
    }
}

impl By {
    fn settle(
        &self,
        reservation: Reservation,
        used: &dyn Fn(usize, u64) -> u64,
    ) -> Result<Settlement, Reservation> {
        match self {
            Self::Alone(limiter) => {
                let used = used(0, reservation.cost());
                limiter.settle(reservation, used)
            }
            Self::AtOnce(several) => several.0.settle(reservation, used),
        }
    }
}

impl HeldReservations {
    /// Renews all reservations of one of this `owner` that can be renewed: see [`Limiter::renew`].
    pub(crate) fn renew(owner: Owner, reservation: &mut Reservation) -> Option<Renewal> {
        if reservation.owner() != owner {
            return None;
        }
        let held: &mut Self = reservation.payload_mut()?;
        let renewals = held.0.iter_mut().filter_map(|Held { by, reservation, .. }| match by {
            By::Alone(limiter) => limiter.renew(reservation),
            By::AtOnce(several) => several.0.renew(reservation),
        });
        let renewals: Vec<_> = renewals.collect();
        let max_hold = renewals.iter().map(Renewal::max_hold).min()?;
        let due = renewals.iter().map(hold::due).min()?;
        let renewal = Renewal::new(max_hold, async {
            let renewed = join_all(renewals).await;
            renewed.into_iter().try_fold(true, |all, one| Ok(all & one?))
        });
        Some(renewal.due_at(due.into_std()))
    }

    /// Returns the reservations from one that [`into_reservation`](Self::into_reservation) made.
    pub(crate) fn of(reservation: Reservation) -> Result<Self, Reservation> {
        reservation.into_payload()
    }

    /// Returns all reservations as one of `cost` units. `None` if there are no reservations.
    pub(crate) fn into_reservation(self, owner: Owner, cost: u64) -> Option<Reservation> {
        let is_held = self.0.iter().any(|held| held.reservation.is_held());
        (!self.0.is_empty()).then(|| Reservation::new(owner, cost, self).with_held(is_held))
    }

    /// Settles each reservation with the limiter that made it, the latest first. `actual` returns
    /// the used units of a charge. Its arguments are the place of the charge, true if a settlement
    /// states its cost, and its own units. Also returns the reservations that their limiters did
    /// not settle.
    pub(crate) fn settle(self, actual: impl Fn(usize, bool, u64) -> u64) -> (Settlement, Self) {
        let (mut settled, mut unsettled) = (Vec::new(), Vec::new());
        for Held { by, charges, reservation } in self.0.into_iter().rev() {
            let Charges { settled: is_settled, places } = charges;
            let used =
                |index: usize, own| actual(places[index].into(), is_settled >> index & 1 == 1, own);
            match by.settle(reservation, &used) {
                Ok(settlement) => settled.push(settlement),
                Err(reservation) => unsettled.push(Held { by, charges, reservation }),
            }
        }
        unsettled.reverse();
        (Settlement::all(settled), Self(unsettled))
    }

    /// Settles a charge of `cost` units, of which `actual` were used. The parts whose cost that does
    /// not state keep theirs, unless all is refunded.
    ///
    /// # Errors
    ///
    /// The units that the limiters did not settle, as a reservation of this `owner`.
    pub(crate) fn settle_stated(
        self,
        owner: Owner,
        cost: u64,
        actual: u64,
    ) -> Result<Settlement, Reservation> {
        let used = |_, is_settled, own| if is_settled || actual == 0 { actual } else { own };
        let (settlement, unsettled) = self.settle(used);
        unsettled.into_reservation(owner, cost).map_or(Ok(settlement), Err)
    }
}

impl Tentative {
    pub(crate) fn new(by: By, charges: Charges, reservation: Option<Reservation>) -> Self {
        let held = reservation.map(|reservation| Held { by, charges, reservation });
        Self(HeldReservations(held.into_iter().collect()))
    }

    pub(crate) fn extend(&mut self, mut later: Self) {
        self.0.0.append(&mut later.0.0);
    }

    /// Returns the reservations, which now stay taken unless they are settled.
    pub(crate) fn keep(mut self) -> HeldReservations {
        mem::take(&mut self.0)
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        // Best effort, like every settlement.
        let _ = mem::take(&mut self.0).settle(|_, _, _| 0);
    }
}
