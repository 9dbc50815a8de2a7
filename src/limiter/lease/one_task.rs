//! The permission of one task to run, and the handle that stops it.

use tokio::task::AbortHandle;

use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{Mutex, lock};

#[derive(Debug, Default)]
pub(super) struct OneTask {
    is_running: AtomicBool,
    handle: Mutex<Option<AbortHandle>>,
}

impl OneTask {
    /// Takes the permission to run. Returns false if another task has it.
    pub(super) fn begin(&self) -> bool {
        !self.is_running.load(SeqCst) && !self.is_running.swap(true, SeqCst)
    }

    /// Lets another task begin.
    pub(super) fn release(&self) {
        self.is_running.store(false, SeqCst);
    }

    /// Keeps the handle of the running task.
    pub(super) fn keep(&self, started: AbortHandle) {
        *lock(&self.handle) = Some(started);
    }

    pub(super) fn stop(&self) {
        if let Some(task) = lock(&self.handle).take() {
            task.abort();
        }
    }
}

/// Tests of all interleavings of a sweeper that stops while a new key comes.
#[cfg(all(test, interleavings))]
mod interleavings {
    use std::sync::Arc;

    use super::*;
    use crate::sync::atomic::AtomicUsize;
    use crate::sync::atomic::Ordering::Relaxed;
    use crate::sync::interleavings::{each, thread};

    /// A key that comes while the sweeper stops either starts a task, or is seen by the running
    /// one.
    #[test]
    fn a_key_always_has_a_sweeper_and_only_one() {
        each("sweeper", || {
            let shared = Arc::new((OneTask::default(), Mutex::new(0), AtomicUsize::new(1)));
            assert!(shared.0.begin());
            let comers = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (task, keys, running) = &*shared;
                    *keys.lock().unwrap() += 1;
                    if task.begin() {
                        assert_eq!(running.fetch_add(1, Relaxed), 0, "two sweep");
                    }
                })
            });
            let (task, keys, running) = &*shared;
            // Like the sweeper when it finds nothing to sweep.
            running.fetch_sub(1, Relaxed);
            task.release();
            if *keys.lock().unwrap() > 0 && task.begin() {
                assert_eq!(running.fetch_add(1, Relaxed), 0, "two sweep");
            }
            comers.into_iter().for_each(|comer| comer.join().unwrap());
            assert_eq!(running.load(Relaxed), 1, "nobody sweeps the keys");
        });
    }
}
