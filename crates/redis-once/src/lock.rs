//! Locks shared state.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even if the lock is poisoned. No code panics while it holds a lock, so the protected data
/// is complete.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
