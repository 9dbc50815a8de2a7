//! The task that ends expired leases, and drops idle keys. A limiter has one while there is a key.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::leased_keys::Leases;
use crate::limiter::Limiter;

/// Starts the task, unless it already runs.
pub(super) fn start<L>(leases: &Arc<Leases<L>>)
where
    L: Limiter + Send + Sync + 'static,
{
    if !leases.sweeper.begin() {
        return;
    }
    let running = Running(Some(Arc::downgrade(leases)));
    if let Ok(runtime) = Handle::try_current() {
        leases.sweeper.keep(runtime.spawn(run(running)).abort_handle());
    }
}

async fn run<L: Limiter>(mut running: Running<L>) {
    while let Some(leases) = running.0.as_ref().and_then(Weak::upgrade) {
        let now = Instant::now();
        let validity = leases.settings.validity;
        let soonest = now + validity / 4;
        let next = match leases.sweep(now) {
            // A lease that begins during the sleep may end after half of its time.
            Some(next) => next.clamp(soonest, now + validity / 2),
            None => {
                leases.sweeper.release();
                // A key that came in between has not started a task.
                if leases.is_empty() || !leases.sweeper.begin() {
                    running.0 = None;
                    return;
                }
                soonest
            }
        };
        drop(leases);
        sleep_until(next).await;
    }
}

/// Lets another task start if this one is dropped, for example by a runtime that ends.
struct Running<L: Limiter>(Option<Weak<Leases<L>>>);

impl<L: Limiter> Drop for Running<L> {
    fn drop(&mut self) {
        if let Some(leases) = self.0.take().and_then(|leases| leases.upgrade()) {
            leases.sweeper.release();
        }
    }
}
