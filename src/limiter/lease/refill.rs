//! The task that asks the inner limiter for the units of a lease.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::leases::Leases;
use super::name::Name;
use crate::limiter::Limiter;
use crate::{Charge, Decision, Error};

/// What a refill asks for.
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
        self.charge.get_cost()
    }
}

/// A refill under way. Dropped before its end, it sends those who wait for it to the inner limiter.
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
            Some(leases) => leases.land(&order, sent, answer),
            None => refund(&*inner, answer),
        }
    }
}

impl<L: Limiter> Drop for Refill<L> {
    fn drop(&mut self) {
        if let (Some(order), Some(leases)) = (self.order.take(), self.leases.upgrade()) {
            leases.lose(&order);
        }
    }
}

/// Refunds all of an answer that nobody uses.
pub(super) fn refund<L: Limiter>(inner: &L, answer: Result<Decision, Error>) {
    if let Some(reservation) = answer.ok().as_mut().and_then(Decision::take_reservation) {
        let _ = inner.settle(reservation, 0);
    }
}
