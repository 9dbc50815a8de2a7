//! One leased key: the units to spend, the refills under way, and the callers that wait for them.

use std::mem;
use std::sync::Arc;

use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use super::answer::{Answer, Asked, Grant};
use super::name::Name;
use super::order::Order;
use super::queue::{Queue, Waiter};
use super::refills::Refills;
use super::settings::Settings;
use super::stock::Stock;
use super::stocks::{Ended, Stocks};
use crate::limiter::Limiter;
use crate::{Charge, Quotas};

/// The smallest refill that is worth asking for before anybody needs it.
const MIN_PREFETCH: u64 = 4;

/// One key. Everything here happens under the lock of its shard, so nothing here calls the inner
/// limiter or wakes a task.
pub(super) struct LeasedKey<L: Limiter> {
    pub(super) name: Name,
    /// A number that differs after each change of the quota and each reset. Units that were ordered
    /// under another generation are not spent.
    pub(super) generation: u64,
    quota: Option<Quotas>,
    asked_at: Instant,
    stocks: Stocks<L>,
    refills: Refills,
    queue: Queue<L>,
}

impl<L: Limiter> LeasedKey<L> {
    pub(super) fn new(name: Name, generation: u64, quota: Option<Quotas>, now: Instant) -> Self {
        Self {
            name,
            generation,
            quota,
            asked_at: now,
            stocks: Stocks::default(),
            refills: Refills::new(now),
            queue: Queue::default(),
        }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        *self.name.text == *name
    }

    pub(super) fn has_quota_of(&self, charge: &Charge) -> bool {
        self.quota.as_ref() == charge.get_quota()
    }

    /// Takes the units of a charge, or lets it wait for a refill, or ask the inner limiter.
    pub(super) fn ask(
        &mut self,
        charge: &Charge,
        now: Instant,
        settings: &Settings,
        may_refill: bool,
        ended: &mut Ended<L>,
    ) -> Asked<L> {
        let cost = charge.get_cost();
        self.asked_at = now;
        self.end_expired(now, ended);
        if let Some(grant) = self.take(cost, now, ended) {
            self.refills.note_use(cost, now, settings);
            let order = may_refill.then(|| self.prefetch(&grant, charge, now, settings));
            return Asked::Granted(grant, order.flatten());
        }
        if !may_refill {
            return Asked::AsksAlone;
        }
        let Some(runtime) = Handle::try_current().ok().map(|runtime| runtime.id()) else {
            return Asked::AsksAlone;
        };
        if !self.refills.may_serve(runtime, charge.deadline()) {
            return Asked::AsksAlone;
        }
        let mut order = None;
        if self.queue.units().saturating_add(cost) > self.refills.units() {
            let units = self.refills.next_units(now, settings).max(cost);
            if units == cost {
                return Asked::AsksAlone;
            }
            order = Some(self.order(runtime, charge, units));
        }
        Asked::Waits(self.queue.push(cost, now), order)
    }

    /// Takes units of the stock that ends first of those that have enough.
    pub(super) fn take(
        &mut self,
        cost: u64,
        now: Instant,
        ended: &mut Ended<L>,
    ) -> Option<Grant<L>> {
        let (stock, left) = self.stocks.take(cost, ended)?;
        Some(Grant { stock, cost, left, at: now })
    }

    /// Orders a refill before the units are spent, if that is worth it.
    fn prefetch(
        &mut self,
        grant: &Grant<L>,
        charge: &Charge,
        now: Instant,
        settings: &Settings,
    ) -> Option<Order> {
        let is_low = grant.left <= grant.stock.units() / 4;
        if !is_low || !self.refills.is_empty() || self.stocks.len() > 1 {
            return None;
        }
        let units = self.refills.next_units(now, settings);
        let runtime = Handle::try_current().ok()?.id();
        (units >= MIN_PREFETCH).then(|| self.order(runtime, charge, units))
    }

    fn order(&mut self, runtime: runtime::Id, charge: &Charge, units: u64) -> Order {
        self.refills.begin(runtime, units, charge.deadline());
        Order::new(self.name.clone(), self.generation, charge, units)
    }

    /// Records that a refill has ended, with any result.
    pub(super) fn end_refill(&mut self, units: u64) {
        self.refills.end(units);
    }

    /// Hands the units of a refill to the waiters, first come, first served, and keeps the rest.
    /// While the reply is on its way, the units may become invalid: a waiter that comes after that
    /// gets none. Returns the waiters with their grants, and after them the waiters that no refill
    /// covers.
    pub(super) fn stock_up(
        &mut self,
        stock: &Arc<Stock<L>>,
        remaining: Option<u64>,
        now: Instant,
        settings: &Settings,
        ended: &mut Ended<L>,
    ) -> Vec<(Waiter<L>, Answer<L>)> {
        self.refills.note_remaining(remaining);
        let (mut left, mut answers) = (stock.units(), Vec::new());
        while let Some(waiter) = self.queue.pop_first(left, stock.valid_until) {
            // A caller that has left takes nothing.
            if !waiter.sender.is_closed() {
                left -= waiter.cost;
                self.refills.note_use(waiter.cost, now, settings);
                let (stock, cost) = (Arc::clone(stock), waiter.cost);
                let grant = Grant { stock, cost, left, at: now };
                answers.push((waiter, Answer::Granted(grant)));
            }
        }
        while self.queue.units() > self.refills.units()
            && let Some(waiter) = self.queue.pop_last()
        {
            answers.push((waiter, Answer::AskAlone));
        }
        match left > 0 && now < stock.valid_until {
            true => self.stocks.put(stock, left),
            false => ended.push((Arc::clone(stock), left)),
        }
        answers
    }

    /// Takes all waiters, after a refill that brought nothing. The key must show demand again
    /// before the next refill.
    pub(super) fn dismiss(&mut self, remaining: Option<u64>, now: Instant) -> Queue<L> {
        self.refills.note_remaining(remaining);
        self.refills.forget_demand(now);
        mem::take(&mut self.queue)
    }

    /// Notes the inner limiter's answer to a charge that asked alone.
    pub(super) fn note(
        &mut self,
        admitted: u64,
        remaining: Option<u64>,
        now: Instant,
        settings: &Settings,
    ) {
        self.refills.note_remaining(remaining);
        self.refills.note_use(admitted, now, settings);
    }

    /// Puts units back, for the next caller. Returns whether they can still be spent.
    pub(super) fn put_back(&mut self, stock: &Arc<Stock<L>>, units: u64, now: Instant) -> bool {
        if stock.generation != self.generation || stock.valid_until <= now {
            return false;
        }
        self.stocks.put(stock, units);
        true
    }

    pub(super) fn end_expired(&mut self, now: Instant, ended: &mut Ended<L>) {
        self.stocks.end_expired(now, ended);
    }

    /// Takes all stocks.
    pub(super) fn end_all(&mut self, ended: &mut Ended<L>) {
        self.stocks.end_all(ended);
    }

    /// Ends expired stocks, or all of them if no caller asks any more. Returns the instant of the
    /// next sweep. `None` if the key is idle.
    pub(super) fn sweep(
        &mut self,
        now: Instant,
        settings: &Settings,
        ended: &mut Ended<L>,
    ) -> Option<Instant> {
        let quiet_at = self.asked_at + settings.validity / 2;
        match quiet_at <= now {
            true => self.end_all(ended),
            false => self.end_expired(now, ended),
        }
        if let Some(valid_until) = self.stocks.next_end() {
            return Some(valid_until.min(quiet_at));
        }
        let idle_at = self.refills.demand_ends_at(settings);
        let is_idle = self.refills.is_empty() && self.queue.is_empty() && idle_at <= now;
        (!is_idle).then_some(idle_at)
    }
}
