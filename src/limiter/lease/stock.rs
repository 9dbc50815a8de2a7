//! The units of one lease: one call takes them, they may be spent for some time, and unspent ones
//! are refunded. A key has several such stocks.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::leased_key::Name;
use super::refill::Order;
use crate::limiter::Limiter;
use crate::reservation::{Owner, Reservation};
use crate::sync::{Mutex, lock};
use crate::{Charge, Decision, Outcome};

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
        self.charge.units()
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
        let mut open = lock(&self.open);
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
        let mut open = lock(&self.open);
        let (reservation, unspent) = (open.reservation.take(), open.unspent);
        drop(open);
        let actual = self.units().saturating_sub(unspent).saturating_add(more);
        reservation.is_some_and(|reservation| self.inner.settle(reservation, actual).is_ok())
    }

    /// Ends the lease without a refund: the inner limiter forgets the units.
    pub(super) fn forget(&self) {
        let reservation = lock(&self.open).reservation.take();
        drop(reservation);
    }

    fn refund(&self) {
        let mut open = lock(&self.open);
        let (reservation, unspent) = (open.reservation.take(), open.unspent);
        drop(open);
        if let Some(reservation) = reservation.filter(|one| unspent > 0 || one.is_held()) {
            // Units that cannot be refunded stay taken, which is safe.
            let _ = self.inner.settle(reservation, self.units().saturating_sub(unspent));
        }
    }
}

impl<L: Limiter> Drop for Stock<L> {
    fn drop(&mut self) {
        self.refund();
    }
}

/// The payload of a reservation of leased units.
pub(super) struct LeasedUnits<L: Limiter>(pub(super) Arc<Stock<L>>);

/// Stocks that are not spent any more, each with the units that no holder has.
pub(super) type Ended<L> = Vec<(Arc<Stock<L>>, u64)>;

/// Stocks with units to spend, the one that ends first at the front.
pub(super) struct Stocks<L: Limiter>(VecDeque<StockLeft<L>>);

/// A stock, and the number of its units that no holder has.
struct StockLeft<L: Limiter> {
    stock: Arc<Stock<L>>,
    left: u64,
}

impl<L: Limiter> Default for Stocks<L> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<L: Limiter> Stocks<L> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the instant at which the next stock ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        Some(self.0.front()?.stock.valid_until)
    }

    /// Takes units of the stock that ends first of those that have enough. Returns it, and the
    /// number of units that it has left.
    pub(super) fn take(&mut self, cost: u64, ended: &mut Ended<L>) -> Option<(Arc<Stock<L>>, u64)> {
        let index = self.0.iter().position(|one| one.left >= cost)?;
        let one = &mut self.0[index];
        one.left -= cost;
        let taken = (Arc::clone(&one.stock), one.left);
        if one.left == 0 {
            ended.extend(self.0.remove(index).map(|one| (one.stock, 0)));
        }
        Some(taken)
    }

    /// Puts units of a stock back, or the first ones in.
    pub(super) fn put(&mut self, stock: &Arc<Stock<L>>, units: u64) {
        if let Some(one) = self.0.iter_mut().find(|one| Arc::ptr_eq(&one.stock, stock)) {
            one.left += units;
            return;
        }
        let later = |one: &StockLeft<L>| one.stock.valid_until > stock.valid_until;
        let index = self.0.iter().position(later).unwrap_or(self.0.len());
        self.0.insert(index, StockLeft { stock: Arc::clone(stock), left: units });
    }

    pub(super) fn end_expired(&mut self, now: Instant, ended: &mut Ended<L>) {
        while self.0.front().is_some_and(|one| one.stock.valid_until <= now)
            && let Some(one) = self.0.pop_front()
        {
            ended.push((one.stock, one.left));
        }
    }

    pub(super) fn end_all(&mut self, ended: &mut Ended<L>) {
        ended.extend(self.0.drain(..).map(|one| (one.stock, one.left)));
    }
}

/// Refunds units that nobody can spend any more. Called without a lock, since the inner limiter may
/// be of any type.
pub(super) fn end<L: Limiter>(ended: Ended<L>) {
    ended.into_iter().for_each(|(stock, left)| stock.end(left));
}
