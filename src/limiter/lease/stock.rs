//! The units of one lease. An order takes them, they may be spent for some time, and unspent units
//! are refunded. A key has several such stocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::reservation::{Owner, Reservation};
use crate::core::settlement::{Settled, Settlement};
use crate::core::sync::atomic::AtomicBool;
use crate::core::sync::{Mutex, lock};
use crate::core::{Charge, Decision, Outcome};
use crate::limiter::Limiter;

/// The name of a key, and its hash, which finds the shard and the key in it.
#[derive(Clone, Debug)]
pub(super) struct LeasedName {
    pub(super) text: Arc<str>,
    pub(super) hash: u64,
    /// True once a reset of the key begins in this process. Where no births are known, charges
    /// from before then take nothing more.
    pub(super) is_reset: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct Order {
    /// The key in the table of leased keys, and its generation.
    pub(super) name: LeasedName,
    pub(super) generation: u64,
    /// The charge that takes the units. Its `max_wait` is 0.
    pub(super) charge: Charge,
}

impl Order {
    /// Makes an order of `units` for the key and quota of `charge`, with its deadline.
    pub(super) fn new(name: LeasedName, generation: u64, charge: &Charge, units: u64) -> Self {
        let charge = charge.clone().cost(units).max_wait(Duration::ZERO);
        Self { name, generation, charge }
    }

    pub(super) fn units(&self) -> u64 {
        self.charge.units()
    }
}

/// The units of one lease. Each holder of units has a reference to the stock. The last holder that
/// drops it refunds the units that were put back.
pub(super) struct Stock<L: Limiter> {
    inner: Arc<L>,
    pub(super) order: Order,
    taken_at: Instant,
    pub(super) valid_until: Instant,
    /// The answer to that charge, without its reservation.
    answer: Decision,
    /// True if the inner limiter made a reservation, and so can settle these units.
    can_settle: bool,
    /// The births of the keys when the units were taken. `None` if only the inner limiter knows
    /// them, as a combination does.
    pub(super) births: Option<Box<[i64]>>,
    open: Mutex<OpenLease>,
}

struct OpenLease {
    /// The inner limiter's reservation of the units. `None` after it is settled.
    reservation: Option<Reservation>,
    /// The units that were put back and cannot be spent any more.
    unspent: u64,
}

impl<L: Limiter> Stock<L> {
    pub(super) fn new(
        inner: Arc<L>,
        order: Order,
        sent: Instant,
        valid_until: Instant,
        mut answer: Decision,
    ) -> Self {
        let reservation = answer.take_reservation();
        let reserved = reservation.as_ref().and_then(Reservation::reserved);
        let births = reserved.map(|reserved| reserved.mark.births().into());
        Self {
            inner,
            order,
            taken_at: sent,
            valid_until,
            answer,
            can_settle: reservation.is_some(),
            births,
            open: Mutex::new(OpenLease { reservation, unspent: 0 }),
        }
    }

    pub(super) fn units(&self) -> u64 {
        self.order.units()
    }

    /// Puts back units that cannot be spent any more. They are refunded with the rest. Returns
    /// their number, or 0 if the rest was already refunded.
    pub(super) fn put_back(&self, units: u64) -> u64 {
        let mut open = lock(&self.open);
        open.unspent += units;
        if open.reservation.is_some() { units } else { 0 }
    }

    /// Takes more units with the reservation of the lease. Units that holders put back later are
    /// then lost. `None` if the inner limiter did not accept it.
    pub(super) fn settle_more(&self, more: u64) -> Option<Settlement> {
        let mut open = lock(&self.open);
        let (reservation, unspent) = (open.reservation.take(), open.unspent);
        drop(open);
        let actual = self.units().saturating_sub(unspent).saturating_add(more);
        let settled = self.inner.settle(reservation?, actual).ok()?;
        // Units that others put back are not given back to this caller.
        Some(settled.map(|result| result.map(|settled| Settled::not_taken(settled.not_taken))))
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

pub(super) struct Grant<L: Limiter> {
    pub(super) stock: Arc<Stock<L>>,
    pub(super) cost: u64,
    /// The units that were then left in the stock.
    pub(super) left: u64,
    pub(super) at: Instant,
}

impl<L: Limiter> Grant<L> {
    pub(super) fn into_decision(self, owner: Owner) -> Decision
    where
        L: Send + Sync + 'static,
    {
        let Self { stock, cost, left, at } = self;
        let elapsed = at.saturating_duration_since(stock.taken_at);
        let decision = stock.answer.without_reservation().later(elapsed, left);
        debug_assert_eq!(decision.outcome(), Outcome::Allow);
        if !stock.can_settle {
            return decision;
        }
        decision.with_reservation(Reservation::new(owner, cost, stock))
    }
}

/// A stock, and the number of its units that no holder has.
///
/// Its drop ends the lease. The units are refunded at once; units that holders put back later are
/// then lost. Without units, the refund waits for the holders. The refund also settles units that a
/// budget holds: those that were not put back are spent.
pub(super) struct StockLeft<L: Limiter> {
    pub(super) stock: Arc<Stock<L>>,
    pub(super) left: u64,
}

impl<L: Limiter> Drop for StockLeft<L> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.stock.put_back(self.left);
            self.stock.refund();
        }
    }
}

/// Stocks whose units are not spent any more. They are dropped without a lock, since the inner
/// limiter, which takes the refunds, may be of any type.
pub(super) type Ended<L> = Vec<StockLeft<L>>;

/// Stocks with units to spend. The one that ends first is at the front.
pub(super) struct Stocks<L: Limiter>(pub(super) VecDeque<StockLeft<L>>);

impl<L: Limiter> Stocks<L> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        Some(self.0.front()?.stock.valid_until)
    }

    /// Returns true if one of the stocks has other births than this one: the key was reset, perhaps
    /// by another process.
    pub(super) fn have_other_births(&self, stock: &Stock<L>) -> bool {
        self.0.iter().any(|one| one.stock.births != stock.births)
    }

    /// Takes units of the stock that ends first, among those with enough units.
    pub(super) fn take(
        &mut self,
        cost: u64,
        at: Instant,
        ended: &mut Ended<L>,
    ) -> Option<Grant<L>> {
        let index = self.0.iter().position(|one| one.left >= cost)?;
        let one = &mut self.0[index];
        one.left -= cost;
        let grant = Grant { stock: Arc::clone(&one.stock), cost, left: one.left, at };
        if one.left == 0 {
            ended.extend(self.0.remove(index));
        }
        Some(grant)
    }

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
            ended.push(one);
        }
    }

    pub(super) fn end_all(&mut self, ended: &mut Ended<L>) {
        ended.extend(self.0.drain(..));
    }
}
