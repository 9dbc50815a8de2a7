//! The units of one lease: one call takes them, they may be spent for some time, and unspent ones
//! are refunded.

use std::sync::{Arc, PoisonError};

use tokio::time::Instant;

use super::name::Name;
use super::order::Order;
use crate::limiter::Limiter;
use crate::sync::{Mutex, MutexGuard};
use crate::{Charge, Decision, Outcome, Owner, Reservation};

/// The units of one lease. Each holder of some of them holds the stock. The last holder that drops
/// it refunds the units that were put back.
pub(super) struct Stock<L: Limiter> {
    inner: Arc<L>,
    /// The key in the table of leased keys, and its generation.
    pub(super) name: Name,
    pub(super) generation: u64,
    /// The charge that took the units.
    pub(super) charge: Charge,
    taken_at: Instant,
    pub(super) valid_until: Instant,
    /// The answer to that charge, without its reservation.
    answer: Decision,
    /// True if the inner limiter made a reservation, so that it can settle these units.
    can_settle: bool,
    open: Mutex<Open>,
}

struct Open {
    /// The inner limiter's reservation of the units. `None` once it is settled.
    reservation: Option<Reservation>,
    /// Units that were put back, and that nobody can spend any more.
    unspent: u64,
}

impl<L: Limiter> Stock<L> {
    /// Makes the stock of the units that the inner limiter admitted for an order sent at `sent`.
    pub(super) fn new(
        inner: Arc<L>,
        order: &Order,
        sent: Instant,
        valid_until: Instant,
        mut answer: Decision,
    ) -> Self {
        let reservation = answer.take_reservation();
        Self {
            inner,
            name: order.name.clone(),
            generation: order.generation,
            charge: order.charge.clone(),
            taken_at: sent,
            valid_until,
            answer,
            can_settle: reservation.is_some(),
            open: Mutex::new(Open { reservation, unspent: 0 }),
        }
    }

    pub(super) fn units(&self) -> u64 {
        self.charge.get_cost()
    }

    /// The decision for `cost` of the units, at an instant when `left` are left.
    pub(super) fn decision(
        self: Arc<Self>,
        owner: Owner,
        cost: u64,
        left: u64,
        at: Instant,
    ) -> Decision
    where
        L: Send + Sync + 'static,
    {
        let elapsed = at.saturating_duration_since(self.taken_at);
        let decision = self.answer.without_reservation().later(elapsed, left);
        debug_assert_eq!(decision.outcome(), Outcome::Allow);
        if !self.can_settle {
            return decision;
        }
        decision.with_reservation(Reservation::new(owner, cost, LeasedUnits(self)))
    }

    /// Puts units back that nobody can spend any more. They are refunded with the rest. Returns
    /// their number, or 0 if the rest was refunded already.
    pub(super) fn put_back(&self, units: u64) -> u64 {
        let mut open = self.lock();
        open.unspent += units;
        if open.reservation.is_some() { units } else { 0 }
    }

    /// Ends the lease with `left` units that no holder has. They are refunded at once; units that
    /// holders put back later are then lost. If `left` is 0, the refund waits for the holders. It
    /// is also the settlement of units that are held: those that were not put back are spent.
    pub(super) fn end(&self, left: u64) {
        if left > 0 {
            self.put_back(left);
            self.refund();
        }
    }

    /// Takes more units with the reservation of the lease. Units that holders put back later are
    /// then lost. Returns whether the inner limiter accepted it.
    pub(super) fn settle_more(&self, more: u64) -> bool {
        let mut open = self.lock();
        let (reservation, unspent) = (open.reservation.take(), open.unspent);
        drop(open);
        let actual = self.units().saturating_sub(unspent).saturating_add(more);
        reservation.is_some_and(|reservation| self.inner.settle(reservation, actual).is_ok())
    }

    /// Ends the lease without a refund: the inner limiter forgets the units.
    pub(super) fn forget(&self) {
        let reservation = self.lock().reservation.take();
        drop(reservation);
    }

    fn refund(&self) {
        let mut open = self.lock();
        let (reservation, unspent) = (open.reservation.take(), open.unspent);
        drop(open);
        if let Some(reservation) = reservation.filter(|one| unspent > 0 || one.is_held()) {
            // Units that cannot be refunded stay taken, which is safe.
            let _ = self.inner.settle(reservation, self.units().saturating_sub(unspent));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Limiter> Drop for Stock<L> {
    fn drop(&mut self) {
        self.refund();
    }
}

/// The payload of a reservation of leased units.
pub(super) struct LeasedUnits<L: Limiter>(pub(super) Arc<Stock<L>>);
