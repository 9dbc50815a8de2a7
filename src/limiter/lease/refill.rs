//! The task of a refill, which asks the inner limiter for its units and distributes them.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::leased_key::{RefillFailure, WaiterAnswer, end_waits};
use super::leased_keys::Leases;
use super::stock::{Ended, LeasedName, Order, Stock, StockLeft};
use crate::core::{Decision, Outcome};
use crate::limiter::Limiter;

/// A running refill. If it is dropped before its end, it sends its waiters to the inner limiter.
pub(super) struct Refill<L: Limiter> {
    leases: Weak<Leases<L>>,
    order: Option<Order>,
}

impl<L> Refill<L>
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    /// Starts a task, so that the refill does not depend on a caller. A runtime that ends drops the
    /// task.
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
        match (self.leases.upgrade(), answer) {
            // A lease would release units at once when it ends, even while requests hold them.
            (Some(leases), Ok(answer))
                if answer.outcome() == Outcome::Allow && !answer.is_at_once() =>
            {
                distribute(&leases, order, sent, answer);
            }
            (leases, answer) => {
                if let Some(leases) = leases {
                    let remaining = answer.as_ref().ok().and_then(Decision::remaining);
                    let deadline = order.charge.deadline();
                    let failure = answer.as_ref().err();
                    let failure = failure.map(|error| RefillFailure::new(error, sent, deadline));
                    dismiss(&leases, &order, remaining, failure);
                }
                if let Some(reservation) = answer.ok().as_mut().and_then(Decision::take_reservation)
                {
                    let _ = inner.settle(reservation, 0);
                }
            }
        }
    }
}

impl<L: Limiter> Drop for Refill<L> {
    fn drop(&mut self) {
        if let (Some(order), Some(leases)) = (self.order.take(), self.leases.upgrade()) {
            dismiss(&leases, &order, None, None);
        }
    }
}

/// Distributes the units that the inner limiter admitted for an order sent at `sent`.
fn distribute<L: Limiter>(leases: &Leases<L>, order: Order, sent: Instant, answer: Decision) {
    let (now, valid_until) = (Instant::now(), sent + leases.settings.validity);
    let (inner, remaining) = (Arc::clone(&leases.inner), answer.remaining());
    let stock = Arc::new(Stock::new(inner, order, sent, valid_until, answer));
    let Order { name: LeasedName { text, hash, .. }, generation, .. } = &stock.order;
    let (mut answers, mut ended) = (Vec::new(), Ended::new());
    let mut shard = leases.shard(*hash);
    let may_be_forgotten = shard.may_be_forgotten(*generation);
    let mut is_forgotten = false;
    // A reset removes its key, so a key of this generation was not reset.
    match shard.key(*hash, text).filter(|key| key.generation == *generation) {
        Some(key) => {
            key.end_refill(stock.units());
            answers = key.serve_waiters(&stock, remaining, now, &leases.settings, &mut ended);
        }
        None if may_be_forgotten => is_forgotten = true,
        None => ended.push(StockLeft { stock: Arc::clone(&stock), left: stock.units() }),
    }
    drop(shard);
    if is_forgotten {
        stock.forget();
    }
    for (waiter, answer) in answers {
        if let Err(WaiterAnswer::Granted(grant)) = waiter.sender.send(answer) {
            leases.put_back(&grant.stock, grant.cost);
        }
    }
}

fn dismiss<L: Limiter>(
    leases: &Leases<L>,
    order: &Order,
    remaining: Option<u64>,
    failure: Option<RefillFailure>,
) {
    let waiters = leases.with_key(order.name.hash, &order.name.text, |key, _| {
        (key.generation == order.generation).then(|| {
            key.end_refill(order.units());
            key.dismiss(remaining, Instant::now())
        })
    });
    end_waits(waiters.flatten().unwrap_or_default(), failure);
}
