//! The parts that the layer, its services and their futures share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::RefusalWatch;

/// The parts that a layer and its services share.
pub(crate) struct Shared<L, K, R> {
    pub(crate) limiter: Arc<L>,
    pub(crate) key: Arc<K>,
    pub(crate) respond: Arc<R>,
    pub(crate) max_wait: Duration,
    /// The permits to wait: one for each request that may wait.
    pub(crate) waiters: Arc<Semaphore>,
    pub(crate) watch: Arc<RefusalWatch>,
}

impl<L, K, R> Clone for Shared<L, K, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            key: Arc::clone(&self.key),
            respond: Arc::clone(&self.respond),
            max_wait: self.max_wait,
            waiters: Arc::clone(&self.waiters),
            watch: Arc::clone(&self.watch),
        }
    }
}

impl<L, K, R> Shared<L, K, R> {
    /// Returns a permit to wait, unless the largest number of requests already waits.
    pub(crate) fn waiter_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.waiters).try_acquire_owned().ok()
    }
}

debug_by_name!([L: fmt::Debug, K, R: fmt::Debug] Shared<L, K, R>: limiter, respond, max_wait, waiters);
