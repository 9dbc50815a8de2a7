//! The task that ends expired leases, and drops idle keys. A limiter has one while there is a key.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::leased_keys::Leases;
use crate::core::sync::lock;
use crate::limiter::Limiter;

/// Starts the task, unless it already runs. A runtime that ended has ended its task too.
pub(super) fn start<L>(leases: &Arc<Leases<L>>)
where
    L: Limiter + Send + Sync + 'static,
{
    let Ok(runtime) = Handle::try_current() else { return };
    let mut sweeper = lock(&leases.sweeper);
    if sweeper.as_ref().is_none_or(AbortHandle::is_finished) {
        *sweeper = Some(runtime.spawn(run(Arc::downgrade(leases))).abort_handle());
    }
}

async fn run<L: Limiter>(weak: Weak<Leases<L>>) {
    while let Some(leases) = weak.upgrade() {
        let now = Instant::now();
        let validity = leases.settings.validity;
        let soonest = now + validity / 4;
        let next = match leases.sweep(now) {
            // A lease that begins during the sleep may end after half of its time.
            Some(next) => next.clamp(soonest, now + validity / 2),
            None => {
                let mut sweeper = lock(&leases.sweeper);
                // A key that came in between has not started a task: it saw this one.
                if leases.is_empty() {
                    *sweeper = None;
                    return;
                }
                soonest
            }
        };
        drop(leases);
        sleep_until(next).await;
    }
}
