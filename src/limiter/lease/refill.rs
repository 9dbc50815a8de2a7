//! The order of a refill, and the task that asks the inner limiter for its units and distributes
//! them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::lease_future::WaiterAnswer;
use super::leased_key::Name;
use super::leased_keys::Leases;
use super::stock::{Ended, Stock, end};
use crate::limiter::Limiter;
use crate::{Charge, Decision, Error, Outcome};

/// The order of a refill.
#[derive(Debug)]
pub(super) struct Order {
    /// The key in the table of leased keys, and its generation.
    pub(super) name: Name,
    pub(super) generation: u64,
    /// The charge that takes the units. It waits for nothing.
    pub(super) charge: Charge,
}

impl Order {
    /// An order of `units` of the key and quota of `charge`, with its deadline.
    pub(super) fn new(name: Name, generation: u64, charge: &Charge, units: u64) -> Self {
        let charge = charge.clone().cost(units).max_wait(Duration::ZERO);
        Self { name, generation, charge }
    }

    pub(super) fn units(&self) -> u64 {
        self.charge.units()
    }
}

/// A refill under way. If it is dropped before its end, it sends its waiters to the inner limiter.
pub(super) struct Refill<L: Limiter> {
    leases: Weak<Leases<L>>,
    order: Option<Order>,
}

impl<L> Refill<L>
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    /// Starts a task, so that no caller has to drive it. A runtime that ends drops the task.
    pub(super) fn spawn(leases: &Arc<Leases<L>>, order: Order) {
        let refill = Self { leases: Arc::downgrade(leases), order: Some(order) };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(refill.run(Arc::clone(&leases.inner)));
        }
    }

    async fn run(mut self, inner: Arc<L>) {
        let Some(order) = &self.order else { return };
        let sent = Instant::now();
        let answer = inner.check(&order.charge).await;
        let Some(order) = self.order.take() else { return };
        match self.leases.upgrade() {
            Some(leases) => distribute(&leases, &order, sent, answer),
            None => refund(&*inner, answer),
        }
    }
}

impl<L: Limiter> Drop for Refill<L> {
    fn drop(&mut self) {
        if let (Some(order), Some(leases)) = (self.order.take(), self.leases.upgrade()) {
            fail(&leases, &order);
        }
    }
}

/// Distributes the units of a refill.
fn distribute<L: Limiter>(
    leases: &Leases<L>,
    order: &Order,
    sent: Instant,
    answer: Result<Decision, Error>,
) {
    let now = Instant::now();
    let valid_until = sent + leases.settings.validity;
    let (remaining, answer) = match answer {
        Ok(answer) => (answer.remaining(), Ok(answer)),
        Err(error) => (None, Err(error)),
    };
    let is_stock = answer.as_ref().is_ok_and(|answer| answer.outcome() == Outcome::Allow);
    let (stock, answer) = match answer {
        Ok(answer) if is_stock => {
            let inner = Arc::clone(&leases.inner);
            (Some(Arc::new(Stock::new(inner, order, sent, valid_until, answer))), None)
        }
        answer => (None, Some(answer)),
    };
    let failure = answer.as_ref().and_then(|answer| answer.as_ref().err().cloned());

    let mut ended = Ended::new();
    let mut shard = leases.shard(order.name.hash);
    let is_forgotten = shard.is_forgotten(order.generation);
    let key = shard.key(order.name.hash, &order.name.text);
    let mut answers = Vec::new();
    match (key.filter(|key| key.generation == order.generation), &stock) {
        (Some(key), Some(stock)) => {
            key.end_refill(order.units());
            answers = key.serve_waiters(stock, remaining, now, &leases.settings, &mut ended);
        }
        (Some(key), None) => {
            key.end_refill(order.units());
            let waiters = key.dismiss(remaining, now).into_waiters();
            let answer = || failure.clone().map_or(WaiterAnswer::AskAlone, WaiterAnswer::Failed);
            answers = waiters.map(|waiter| (waiter, answer())).collect();
        }
        (None, Some(_)) if is_forgotten => {}
        (None, Some(stock)) => ended.push((Arc::clone(stock), order.units())),
        (None, None) => {}
    }
    drop(shard);
    if let Some(stock) = stock.filter(|_| is_forgotten) {
        stock.forget();
    }
    for (waiter, answer) in answers {
        if let Err(WaiterAnswer::Granted(grant)) = waiter.sender.send(answer) {
            leases.put_back(&grant.stock, grant.cost);
        }
    }
    end(ended);
    if let Some(answer) = answer {
        refund(&*leases.inner, answer);
    }
}

/// Ends a refill that got no answer.
fn fail<L: Limiter>(leases: &Leases<L>, order: &Order) {
    let mut shard = leases.shard(order.name.hash);
    let key = shard.key(order.name.hash, &order.name.text);
    let waiters = key.filter(|key| key.generation == order.generation).map(|key| {
        key.end_refill(order.units());
        key.dismiss(None, Instant::now())
    });
    drop(shard);
    waiters.unwrap_or_default().ask_alone();
}

/// Refunds all units of an answer that no caller uses.
fn refund<L: Limiter>(inner: &L, answer: Result<Decision, Error>) {
    if let Some(reservation) = answer.ok().as_mut().and_then(Decision::take_reservation) {
        let _ = inner.settle(reservation, 0);
    }
}
