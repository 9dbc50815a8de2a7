//! The task that ends the leases that are over, and drops idle keys.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::leases::Leases;
use crate::limiter::Limiter;

/// One task for a limiter, as long as there is a key.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    is_running: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

impl Sweeper {
    pub(super) fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Starts the task unless it runs.
pub(super) fn start<L>(leases: &Arc<Leases<L>>)
where
    L: Limiter + Send + Sync + 'static,
{
    let Sweeper { is_running, task } = &leases.sweeper;
    if is_running.load(SeqCst) || is_running.swap(true, SeqCst) {
        return;
    }
    let running = Running(Some(Arc::downgrade(leases)));
    if let Ok(runtime) = Handle::try_current() {
        let started = runtime.spawn(run(running)).abort_handle();
        *task.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
    }
}

async fn run<L: Limiter>(mut running: Running<L>) {
    while let Some(leases) = running.0.as_ref().and_then(Weak::upgrade) {
        let now = Instant::now();
        let validity = leases.settings.validity;
        let soonest = now + validity / 4;
        let next = match leases.sweep(now) {
            // A lease that begins meanwhile may end after half of its time.
            Some(next) => next.clamp(soonest, now + validity / 2),
            None => {
                leases.sweeper.is_running.store(false, SeqCst);
                // A key that came meanwhile started no task.
                if leases.is_empty() || leases.sweeper.is_running.swap(true, SeqCst) {
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

/// Lets another task start if this one is dropped, as by a runtime that ends.
struct Running<L: Limiter>(Option<Weak<Leases<L>>>);

impl<L: Limiter> Drop for Running<L> {
    fn drop(&mut self) {
        if let Some(leases) = self.0.take().and_then(|leases| leases.upgrade()) {
            leases.sweeper.is_running.store(false, SeqCst);
        }
    }
}
