//! The reservations of the members: settled together, or refunded when one of them refuses.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::limiter::{Boxed, Limiter};
use crate::settlement::Settlement;
use crate::{Owner, Reservation};

/// The reservations of the members.
pub(super) struct MemberReservations(pub(super) Vec<MemberReservation>);

pub(super) struct MemberReservation {
    pub(super) reservation: Reservation,
    /// True if the member states no cost of its own, and takes that of the charge.
    pub(super) inherits_cost: bool,
}

impl MemberReservations {
    /// All of them as one, of `cost` units.
    pub(super) fn into_reservation(self, owner: Owner, cost: u64) -> Reservation {
        let held = self.0.iter().any(|member| member.reservation.is_held());
        Reservation::new(owner, cost, self).with_held(held)
    }

    /// Settles each with the limiter that made it, the latest first. A member that states its own
    /// cost keeps it, unless all is refunded. The error: those that no limiter settled.
    pub(super) fn settle(self, limiters: &[Boxed], actual: u64) -> Result<Settlement, Self> {
        let (mut settled, mut unsettled) = (Vec::new(), Vec::new());
        for MemberReservation { reservation, inherits_cost } in self.0.into_iter().rev() {
            let actual = if inherits_cost || actual == 0 { actual } else { reservation.cost() };
            let settle = |reservation, limiter: &Boxed| match limiter.settle(reservation, actual) {
                Ok(settlement) => ControlFlow::Break(settlement),
                Err(reservation) => ControlFlow::Continue(reservation),
            };
            match limiters.iter().try_fold(reservation, settle) {
                ControlFlow::Break(settlement) => settled.push(settlement),
                ControlFlow::Continue(reservation) => {
                    unsettled.push(MemberReservation { reservation, inherits_cost });
                }
            }
        }
        unsettled.reverse();
        if unsettled.is_empty() { Ok(Settlement::all(settled)) } else { Err(Self(unsettled)) }
    }
}

/// The reservations so far: refunded when dropped, unless all members have admitted.
pub(super) struct TentativeReservations<const N: usize> {
    pub(super) limiters: Arc<[Boxed; N]>,
    pub(super) reservations: Vec<MemberReservation>,
}

impl<const N: usize> Drop for TentativeReservations<N> {
    fn drop(&mut self) {
        // Best effort, as every settlement is.
        let _ = MemberReservations(mem::take(&mut self.reservations)).settle(&self.limiters[..], 0);
    }
}
