//! Locks whose holders never leave anything half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not somebody panicked with the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
