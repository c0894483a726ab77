use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a holder panicked. For values that are sound after every statement of
/// a holder, such as counters and maps that are changed by single calls.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn the_value_is_accessible_after_a_holder_panicked() {
        let value = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            *lock(&value) = 2;
            let _held = lock(&value);
            panic!("with the lock held");
        }));
        assert!(panicked.is_err() && value.is_poisoned());
        assert_eq!(*lock(&value), 2);
    }
}
