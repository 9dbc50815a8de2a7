//! One leased key: its name, the units to spend, the running refills, and the callers that wait for
//! them.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::LeaseSettings;
use super::stock::{Ended, Grant, LeasedName, Order, Stock, StockLeft, Stocks};
use crate::core::quota::Quotas;
use crate::core::{Charge, Error};
use crate::limiter::Limiter;
use crate::limiter::charge_numbers::one_key;

/// The smallest refill that is ordered in advance.
const MIN_PREFETCH: u64 = 4;

/// One key. All methods run under the lock of its shard, so they must not call the inner limiter or
/// wake a task.
pub(super) struct LeasedKey<L: Limiter> {
    pub(super) name: LeasedName,
    /// A number that changes with each change of the quota and each reset. Units that were ordered
    /// under another generation are not spent.
    pub(super) generation: u64,
    pub(super) stocks: Stocks<L>,
    quota: Option<Quotas>,
    asked_at: Instant,
    demand: Demand,
    /// The units that were left after the last answer of the inner limiter.
    remaining: Option<u64>,
    under_way: UnderWay,
    queue: WaiterQueue<L>,
}

pub(super) enum KeyAnswer<L: Limiter> {
    Granted(Grant<L>),
    Waits(oneshot::Receiver<WaiterAnswer<L>>),
    /// The charge asks the inner limiter itself.
    AsksAlone,
}

pub(super) enum WaiterAnswer<L: Limiter> {
    Granted(Grant<L>),
    Failed(RefillFailure),
    /// The charge asks the inner limiter itself.
    AskAlone,
}

/// The inner limiter did not decide a refill.
#[derive(Clone)]
pub(super) struct RefillFailure {
    pub(super) error: Error,
    /// Set if the refill's own time was over. A charge that has time until then, which is as much
    /// as the refill had, asks alone.
    pub(super) ask_alone_from: Option<StdInstant>,
}

impl RefillFailure {
    /// The failure of a refill with this deadline, which began at `sent`.
    pub(super) fn new(error: &Error, sent: Instant, deadline: Option<StdInstant>) -> Self {
        let now = Instant::now();
        let is_over = deadline.is_some_and(|deadline| deadline <= now.into_std());
        let ask_alone_from = is_over.then(|| (now + (now - sent)).into_std());
        Self { error: error.clone(), ask_alone_from }
    }
}

impl<L: Limiter> LeasedKey<L> {
    pub(super) fn new(
        name: LeasedName,
        generation: u64,
        quota: Option<Quotas>,
        now: Instant,
    ) -> Self {
        Self {
            name,
            generation,
            stocks: Stocks(VecDeque::new()),
            quota,
            asked_at: now,
            demand: Demand::new(now),
            remaining: None,
            under_way: UnderWay::default(),
            queue: WaiterQueue { waiters: LeaseWaiters::new(), units: 0 },
        }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        *self.name.text == *name
    }

    pub(super) fn has_quota_of(&self, charge: &Charge) -> bool {
        self.quota.as_ref() == charge.own_quota()
    }

    /// Takes the units of a charge, or lets it wait for a refill, or ask the inner limiter. The
    /// returned order is for a refill that must be started, for this charge or for later ones.
    pub(super) fn ask(
        &mut self,
        charge: &Charge,
        now: Instant,
        settings: &LeaseSettings,
        may_refill: bool,
        ended: &mut Ended<L>,
    ) -> (KeyAnswer<L>, Option<Order>) {
        let cost = charge.units();
        self.asked_at = now;
        self.stocks.end_expired(now, ended);
        if let Some(grant) = self.stocks.take(cost, now, ended) {
            self.demand.add(now, settings.validity, cost);
            let order = may_refill.then(|| self.prefetch(&grant, charge, now, settings));
            return (KeyAnswer::Granted(grant), order.flatten());
        }
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let may_serve = |runtime: &_| self.under_way.may_serve(*runtime, charge.deadline());
        let Some(runtime) = runtime.filter(|runtime| may_refill && may_serve(runtime)) else {
            return (KeyAnswer::AsksAlone, None);
        };
        let mut order = None;
        if self.queue.units.saturating_add(cost) > self.under_way.units {
            let units = self.next_units(now, settings).max(cost);
            if units == cost {
                return (KeyAnswer::AsksAlone, None);
            }
            order = Some(self.order(runtime, charge, units));
        }
        (KeyAnswer::Waits(self.queue.push(cost, now)), order)
    }

    /// Orders a refill before the units are spent, if it is large enough.
    fn prefetch(
        &mut self,
        grant: &Grant<L>,
        charge: &Charge,
        now: Instant,
        settings: &LeaseSettings,
    ) -> Option<Order> {
        let is_low = grant.left <= grant.stock.units() / 4;
        if !is_low || self.under_way.count > 0 || self.stocks.len() > 1 {
            return None;
        }
        let units = self.next_units(now, settings);
        let runtime = Handle::try_current().ok()?.id();
        (units >= MIN_PREFETCH).then(|| self.order(runtime, charge, units))
    }

    /// Returns the units of the next lease. At most half of the recent use, so that a lease is
    /// spent in time, and at most half of the remaining units, so that other processes get some.
    fn next_units(&mut self, now: Instant, settings: &LeaseSettings) -> u64 {
        let wanted = self.demand.recent(now, settings.validity) / 2;
        let remaining = self.remaining.unwrap_or(u64::MAX);
        wanted.min(remaining.saturating_sub(self.under_way.units) / 2).min(settings.max_units)
    }

    fn order(&mut self, runtime: runtime::Id, charge: &Charge, units: u64) -> Order {
        self.under_way.begin(runtime, units, charge.deadline());
        Order::new(self.name.clone(), self.generation, charge, units)
    }

    /// Records that a refill has ended, with any result.
    pub(super) fn end_refill(&mut self, units: u64) {
        self.under_way.end(units);
    }

    /// Gives the units of a refill to the waiters, first come, first served, and keeps the rest.
    /// The units may become invalid before the reply comes: waiters that come after that get no
    /// units. Returns the waiters with their grants, and then the waiters that no refill covers.
    pub(super) fn serve_waiters(
        &mut self,
        stock: &Arc<Stock<L>>,
        remaining: Option<u64>,
        now: Instant,
        settings: &LeaseSettings,
        ended: &mut Ended<L>,
    ) -> Vec<(LeaseWaiter<L>, WaiterAnswer<L>)> {
        self.remaining = remaining;
        let (mut left, mut answers) = (stock.units(), Vec::new());
        while let Some(waiter) = self.queue.pop_first(left, stock.valid_until) {
            // A caller that has left takes nothing. Its waker is dropped without the lock.
            if waiter.sender.is_closed() {
                answers.push((waiter, WaiterAnswer::AskAlone));
            } else {
                left -= waiter.cost;
                self.demand.add(now, settings.validity, waiter.cost);
                let (stock, cost) = (Arc::clone(stock), waiter.cost);
                let grant = Grant { stock, cost, left, at: now };
                answers.push((waiter, WaiterAnswer::Granted(grant)));
            }
        }
        while self.queue.units > self.under_way.units
            && let Some(waiter) = self.queue.pop_last()
        {
            answers.push((waiter, WaiterAnswer::AskAlone));
        }
        match left > 0 && now < stock.valid_until {
            true => self.stocks.put(stock, left),
            false => ended.push(StockLeft { stock: Arc::clone(stock), left }),
        }
        answers
    }

    /// Takes out all waiters after a refill without units. The key must show demand again before
    /// the next refill.
    pub(super) fn dismiss(&mut self, remaining: Option<u64>, now: Instant) -> LeaseWaiters<L> {
        self.remaining = remaining;
        self.demand = Demand::new(now);
        self.queue.units = 0;
        mem::take(&mut self.queue.waiters)
    }

    /// Records the inner limiter's answer to a charge that asked alone.
    pub(super) fn note(
        &mut self,
        admitted: u64,
        remaining: Option<u64>,
        now: Instant,
        settings: &LeaseSettings,
    ) {
        self.remaining = remaining;
        self.demand.add(now, settings.validity, admitted);
    }

    /// Puts units back for the next caller. Returns true if they can still be spent.
    pub(super) fn put_back(&mut self, stock: &Arc<Stock<L>>, units: u64, now: Instant) -> bool {
        if stock.order.generation != self.generation || stock.valid_until <= now {
            return false;
        }
        self.stocks.put(stock, units);
        true
    }

    /// Ends expired stocks, or all stocks if no caller asks any more. Returns the instant of the
    /// next sweep. `None` if the key is idle.
    pub(super) fn sweep(
        &mut self,
        now: Instant,
        settings: &LeaseSettings,
        ended: &mut Ended<L>,
    ) -> Option<Instant> {
        let quiet_at = self.asked_at + settings.validity / 2;
        match quiet_at <= now {
            true => self.stocks.end_all(ended),
            false => self.stocks.end_expired(now, ended),
        }
        if let Some(valid_until) = self.stocks.next_end() {
            return Some(valid_until.min(quiet_at));
        }
        let idle_at = self.demand.ends_at(settings.validity);
        let is_idle = self.under_way.count == 0 && self.queue.waiters.is_empty() && idle_at <= now;
        (!is_idle).then_some(idle_at)
    }
}

/// Returns true if a charge has one key, which may be leased. An empty or too long key, which the
/// inner limiter rejects, is not hashed.
pub(super) fn may_be_leased(charge: &Charge) -> bool {
    one_key(charge).is_ok()
}

pub(super) struct LeaseWaiter<L: Limiter> {
    cost: u64,
    since: Instant,
    pub(super) sender: oneshot::Sender<WaiterAnswer<L>>,
}

pub(super) type LeaseWaiters<L> = VecDeque<LeaseWaiter<L>>;

/// Sends waiters to the inner limiter, unless the inner limiter has failed.
pub(super) fn end_waits<L: Limiter>(waiters: LeaseWaiters<L>, failure: Option<RefillFailure>) {
    for waiter in waiters {
        let answer = failure.clone().map_or(WaiterAnswer::AskAlone, WaiterAnswer::Failed);
        let _ = waiter.sender.send(answer);
    }
}

struct WaiterQueue<L: Limiter> {
    waiters: LeaseWaiters<L>,
    units: u64,
}

impl<L: Limiter> WaiterQueue<L> {
    fn push(&mut self, cost: u64, now: Instant) -> oneshot::Receiver<WaiterAnswer<L>> {
        let (sender, receiver) = oneshot::channel();
        self.units = self.units.saturating_add(cost);
        self.waiters.push_back(LeaseWaiter { cost, since: now, sender });
        receiver
    }

    /// Takes out the first caller, if it needs at most `units` and came before `end`.
    fn pop_first(&mut self, units: u64, end: Instant) -> Option<LeaseWaiter<L>> {
        let is_served = |first: &LeaseWaiter<L>| first.cost <= units && first.since < end;
        let waiter =
            if is_served(self.waiters.front()?) { self.waiters.pop_front() } else { None }?;
        self.units = self.units.saturating_sub(waiter.cost);
        Some(waiter)
    }

    fn pop_last(&mut self) -> Option<LeaseWaiter<L>> {
        let waiter = self.waiters.pop_back()?;
        self.units = self.units.saturating_sub(waiter.cost);
        Some(waiter)
    }
}

/// The running refills. All belong to one runtime, so that a blocked runtime does not delay others.
#[derive(Debug, Default)]
struct UnderWay {
    runtime: Option<runtime::Id>,
    /// The latest of their deadlines, if each has one.
    deadline: Option<StdInstant>,
    count: usize,
    units: u64,
}

impl UnderWay {
    /// Returns true if a caller of this runtime may wait for a refill until `deadline`. A caller
    /// with less time than the refills would not get their error.
    fn may_serve(&self, runtime: runtime::Id, deadline: Option<StdInstant>) -> bool {
        let is_before = |end| deadline.is_some_and(|deadline| deadline < end);
        let Self { runtime: other, deadline: end, .. } = *self;
        other.is_none_or(|other| other == runtime && !end.map_or(deadline.is_some(), is_before))
    }

    fn begin(&mut self, runtime: runtime::Id, units: u64, deadline: Option<StdInstant>) {
        let is_first = self.runtime.replace(runtime).is_none();
        let latest = self.deadline.zip(deadline).map(|(one, other)| one.max(other));
        self.deadline = if is_first { deadline } else { latest };
        self.count += 1;
        self.units = self.units.saturating_add(units);
    }

    /// Records that a refill has ended, with any result.
    fn end(&mut self, units: u64) {
        self.count = self.count.saturating_sub(1);
        self.units = self.units.saturating_sub(units);
        if self.count == 0 {
            *self = Self::default();
        }
    }
}

/// The units that were admitted in the current stretch of time and in the stretch before.
#[derive(Debug)]
struct Demand {
    since: Instant,
    units: u64,
    before: u64,
}

impl Demand {
    fn new(now: Instant) -> Self {
        Self { since: now, units: 0, before: 0 }
    }

    fn add(&mut self, now: Instant, stretch: Duration, units: u64) {
        self.move_on(now, stretch);
        self.units = self.units.saturating_add(units);
    }

    fn recent(&mut self, now: Instant, stretch: Duration) -> u64 {
        self.move_on(now, stretch);
        self.units.max(self.before)
    }

    /// Returns the instant at which the demand becomes 0, unless more units are admitted.
    fn ends_at(&self, stretch: Duration) -> Instant {
        self.since + 2 * stretch
    }

    fn move_on(&mut self, now: Instant, stretch: Duration) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= 2 * stretch {
            *self = Self::new(now);
        } else if elapsed >= stretch {
            *self = Self { since: self.since + stretch, units: 0, before: self.units };
        }
    }
}

#[cfg(test)]
mod tests;
