//! Who counts the requests that wait for their slot.

use std::fmt;
use std::sync::Arc;

/// Counts those who wait. A decision that delays carries it to where the wait is slept.
pub(crate) trait Waiters: Send + Sync {
    fn add(&self);
    fn remove(&self);
}

/// Both count.
impl Waiters for (Arc<dyn Waiters>, Arc<dyn Waiters>) {
    fn add(&self) {
        self.0.add();
        self.1.add();
    }

    fn remove(&self) {
        self.0.remove();
        self.1.remove();
    }
}

/// One that waits: counted until it is dropped.
pub(crate) struct Waiter(Arc<dyn Waiters>);

impl Waiter {
    pub(crate) fn new(waiters: Arc<dyn Waiters>) -> Self {
        waiters.add();
        Self(waiters)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.remove();
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiter").finish_non_exhaustive()
    }
}
