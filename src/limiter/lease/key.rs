//! What is known of one key: the units to spend, the refills under way, and who waits for them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{Answer, Asked, Grant, Waiter};
use super::demand::Demand;
use super::name::Name;
use super::refill::Order;
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
    /// Different after each change of the quota and each reset. What was asked for under another
    /// generation is not spent.
    pub(super) generation: u64,
    quota: Option<Quotas>,
    demand: Demand,
    asked_at: Instant,
    /// The units that the last answer of the inner limiter left.
    remaining: Option<u64>,
    stocks: Stocks<L>,
    refills: Refills,
    waiters: VecDeque<Waiter<L>>,
    /// The units that the waiters need.
    queued: u64,
}

/// The refills under way. All belong to one runtime, so that a runtime that stands still delays no
/// other.
#[derive(Default)]
struct Refills {
    runtime: Option<runtime::Id>,
    count: usize,
    units: u64,
}

impl<L: Limiter> LeasedKey<L> {
    pub(super) fn new(name: Name, generation: u64, quota: Option<Quotas>, now: Instant) -> Self {
        Self {
            name,
            generation,
            quota,
            demand: Demand::new(now),
            asked_at: now,
            remaining: None,
            stocks: Stocks::default(),
            refills: Refills::default(),
            waiters: VecDeque::new(),
            queued: 0,
        }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        *self.name.text == *name
    }

    pub(super) fn has_quota_of(&self, charge: &Charge) -> bool {
        self.quota.as_ref() == charge.get_quota()
    }

    /// Takes the units of a charge, or says who gets them.
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
            self.demand.add(now, settings.validity, cost);
            let order = may_refill.then(|| self.prefetch(&grant, charge, now, settings));
            return Asked::Granted(grant, order.flatten());
        }
        if !may_refill {
            return Asked::AsksAlone;
        }
        let Some(runtime) = Handle::try_current().ok().map(|runtime| runtime.id()) else {
            return Asked::AsksAlone;
        };
        if self.refills.runtime.is_some_and(|other| other != runtime) {
            return Asked::AsksAlone;
        }
        let mut order = None;
        if self.queued.saturating_add(cost) > self.refills.units {
            let units = self.next_units(now, settings).max(cost);
            if units == cost {
                return Asked::AsksAlone;
            }
            order = Some(self.order(runtime, charge, units));
        }
        let (sender, receiver) = oneshot::channel();
        self.queued += cost;
        self.waiters.push_back(Waiter { cost, since: now, sender });
        Asked::Waits(receiver, order)
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
        if !is_low || self.refills.count > 0 || self.stocks.len() > 1 {
            return None;
        }
        let units = self.next_units(now, settings);
        let runtime = Handle::try_current().ok()?.id();
        (units >= MIN_PREFETCH).then(|| self.order(runtime, charge, units))
    }

    /// The units of the next lease: at most half of the recent use, so that a lease is spent in
    /// time, and at most half of what is left, so that others find some.
    fn next_units(&mut self, now: Instant, settings: &Settings) -> u64 {
        let wanted = self.demand.recent(now, settings.validity) / 2;
        let remaining = self.remaining.unwrap_or(u64::MAX);
        wanted.min(remaining.saturating_sub(self.refills.units) / 2).min(settings.max_units)
    }

    fn order(&mut self, runtime: runtime::Id, charge: &Charge, units: u64) -> Order {
        self.refills.runtime = Some(runtime);
        self.refills.count += 1;
        self.refills.units += units;
        Order::new(self.name.clone(), self.generation, charge, units)
    }

    /// A refill has ended, whatever it brought.
    pub(super) fn end_refill(&mut self, units: u64) {
        self.refills.count = self.refills.count.saturating_sub(1);
        self.refills.units = self.refills.units.saturating_sub(units);
        if self.refills.count == 0 {
            self.refills = Refills::default();
        }
    }

    /// Hands the units of a refill to those who wait, first come, first served, and keeps the rest.
    /// Who came when the units were not valid any more, while the reply was on its way, gets none.
    /// Returns the waiters with their grants, and after them those that no refill covers.
    pub(super) fn stock_up(
        &mut self,
        stock: &Arc<Stock<L>>,
        remaining: Option<u64>,
        now: Instant,
        settings: &Settings,
        ended: &mut Ended<L>,
    ) -> Vec<(Waiter<L>, Answer<L>)> {
        self.remaining = remaining;
        let (mut left, mut answers) = (stock.units(), Vec::new());
        let fits =
            |waiter: &Waiter<L>, left| waiter.cost <= left && waiter.since < stock.valid_until;
        while self.waiters.front().is_some_and(|waiter| fits(waiter, left))
            && let Some(waiter) = self.waiters.pop_front()
        {
            self.queued -= waiter.cost;
            // A caller that has left takes nothing.
            if !waiter.sender.is_closed() {
                left -= waiter.cost;
                self.demand.add(now, settings.validity, waiter.cost);
                let (stock, cost) = (Arc::clone(stock), waiter.cost);
                let grant = Grant { stock, cost, left, at: now };
                answers.push((waiter, Answer::Granted(grant)));
            }
        }
        while self.queued > self.refills.units
            && let Some(waiter) = self.waiters.pop_back()
        {
            self.queued -= waiter.cost;
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
    pub(super) fn dismiss(&mut self, remaining: Option<u64>, now: Instant) -> VecDeque<Waiter<L>> {
        self.remaining = remaining;
        self.demand = Demand::new(now);
        self.queued = 0;
        std::mem::take(&mut self.waiters)
    }

    /// Notes what the inner limiter answered to a charge that asked alone.
    pub(super) fn note(
        &mut self,
        admitted: u64,
        remaining: Option<u64>,
        now: Instant,
        settings: &Settings,
    ) {
        self.remaining = remaining;
        self.demand.add(now, settings.validity, admitted);
    }

    /// Puts units back, for the next caller. Returns whether anybody can still spend them.
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

    /// Ends what is over: expired stocks, and all of them if nobody asks any more. Returns when to
    /// look again. `None` if the key is idle.
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
        let idle_at = self.demand.ends_at(settings.validity);
        let is_idle = self.refills.count == 0 && self.waiters.is_empty() && idle_at <= now;
        (!is_idle).then_some(idle_at)
    }
}
