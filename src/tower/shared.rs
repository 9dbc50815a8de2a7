//! The parts that the layer, its services and their futures share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::core::Decision;
use crate::limiter::Limiter;
use crate::observe::RefusalWatch;

pub(crate) struct Shared<L, K, R, H> {
    pub(crate) limiter: Arc<L>,
    pub(crate) key: Arc<K>,
    pub(crate) respond: Arc<R>,
    pub(crate) hooks: H,
    pub(crate) max_wait: Duration,
    /// The permits to wait: one for each request that may wait.
    pub(crate) waiters: Arc<Semaphore>,
    pub(crate) watch: Arc<RefusalWatch>,
}

/// The hooks of a layer: how it settles answered requests (`F`), who settles them later (`W`), and
/// what becomes of the bodies of refused requests (`D`). The setters of
/// [`RateLimitLayer`](crate::RateLimitLayer) set them.
#[derive(Default)]
pub struct Hooks<F = (), W = (), D = ()> {
    pub(crate) settle: Arc<F>,
    pub(crate) later: W,
    pub(crate) drain: D,
}

impl<F, W: Clone, D: Clone> Clone for Hooks<F, W, D> {
    fn clone(&self) -> Self {
        Self {
            settle: Arc::clone(&self.settle),
            later: self.later.clone(),
            drain: self.drain.clone(),
        }
    }
}

debug_by_name!([F, W, D] Hooks<F, W, D>);

impl<L, K, R, H: Clone> Clone for Shared<L, K, R, H> {
    fn clone(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            key: Arc::clone(&self.key),
            respond: Arc::clone(&self.respond),
            hooks: self.hooks.clone(),
            max_wait: self.max_wait,
            waiters: Arc::clone(&self.waiters),
            watch: Arc::clone(&self.watch),
        }
    }
}

impl<L: Limiter, K, R, H> Shared<L, K, R, H> {
    /// Settles the units that a request took, if there are any.
    pub(crate) fn settle(&self, decision: &mut Option<Decision>, actual: u64) {
        if let Some(reservation) = decision.as_mut().and_then(Decision::take_reservation)
            && self.limiter.settle(reservation, actual).is_err()
        {
            self.watch.unsettled();
        }
    }
}

debug_by_name!([L: fmt::Debug, K, R: fmt::Debug, H] Shared<L, K, R, H>: limiter, respond, max_wait, waiters);
