//! The answer to a charge: units of a lease, or the way to the inner limiter.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::order::Order;
use super::stock::Stock;
use crate::limiter::Limiter;
use crate::{Decision, Error, Owner};

/// The answer to a waiter.
pub(super) enum Answer<L: Limiter> {
    Granted(Grant<L>),
    /// The inner limiter did not decide.
    Failed(Error),
    /// The charge asks the inner limiter itself.
    AskAlone,
}

/// Units that were granted to a waiter, which has not received them yet.
pub(super) struct Grant<L: Limiter> {
    pub(super) stock: Arc<Stock<L>>,
    pub(super) cost: u64,
    /// The units that the stock then had left.
    pub(super) left: u64,
    pub(super) at: Instant,
}

impl<L: Limiter> Grant<L> {
    pub(super) fn into_decision(self, owner: Owner) -> Decision
    where
        L: Send + Sync + 'static,
    {
        self.stock.decision(owner, self.cost, self.left, self.at)
    }
}

/// The next step of a charge.
pub(super) enum Asked<L: Limiter> {
    /// It takes units of a stock. The order, if any, is for later charges.
    Granted(Grant<L>, Option<Order>),
    /// It waits for a refill, maybe for one that has to be started.
    Waits(oneshot::Receiver<Answer<L>>, Option<Order>),
    /// It asks the inner limiter itself.
    AsksAlone,
}
