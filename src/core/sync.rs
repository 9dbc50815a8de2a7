//! The locks and atomics of shared state: those of the standard library, or loom's.
//!
//! Under `--cfg interleavings` they are loom's. Loom tries all interleavings of threads in the
//! tests called `interleavings`. `CONTRIBUTING.md` has the command.

#[cfg(not(interleavings))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(interleavings)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

/// Locks even if the lock is poisoned. No code panics while it holds a lock, so the protected data
/// is complete.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Tries all interleavings of the threads that a test spawns.
#[cfg(all(test, interleavings))]
pub(crate) mod interleavings;
