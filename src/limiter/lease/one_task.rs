//! A task of which there is one at a time.

use std::sync::PoisonError;

use tokio::task::AbortHandle;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The right of one task to run, and the handle that stops the task.
#[derive(Debug, Default)]
pub(super) struct OneTask {
    is_running: AtomicBool,
    handle: Mutex<Option<AbortHandle>>,
}

impl OneTask {
    /// Claims the right to run. Returns whether no other task has it.
    pub(super) fn claim(&self) -> bool {
        !self.is_running.load(SeqCst) && !self.is_running.swap(true, SeqCst)
    }

    /// Lets another task claim the right to run.
    pub(super) fn release(&self) {
        self.is_running.store(false, SeqCst);
    }

    /// Keeps the handle of the task that runs.
    pub(super) fn keep(&self, started: AbortHandle) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
    }

    pub(super) fn stop(&self) {
        if let Some(task) = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}
