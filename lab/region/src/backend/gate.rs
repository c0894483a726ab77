//! Slots that threads wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Admits a fixed number of threads at once; the others wait.
pub(crate) struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    slots: usize,
    inside: usize,
}

impl Gate {
    pub(crate) fn new(slots: usize) -> Gate {
        Gate { state: Mutex::new(State { slots, inside: 0 }), left: Condvar::new() }
    }

    pub(crate) fn enter(&self) {
        let full = |state: &mut State| state.inside >= state.slots;
        let waited = self.left.wait_while(self.state(), full);
        waited.unwrap_or_else(PoisonError::into_inner).inside += 1;
    }

    pub(crate) fn leave(&self) {
        self.state().inside -= 1;
        self.left.notify_one();
    }

    /// Changes the number of slots; threads that are in stay.
    pub(crate) fn resize(&self, slots: usize) {
        self.state().slots = slots;
        self.left.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_waits_until_another_leaves_or_there_are_more_slots() {
        let gate = Arc::new(Gate::new(1));
        gate.enter();
        let (sender, entered) = mpsc::channel();
        for _ in 0..2 {
            let (gate, sender) = (gate.clone(), sender.clone());
            std::thread::spawn(move || {
                gate.enter();
                sender.send(()).expect("the test waits");
            });
        }
        assert!(entered.try_recv().is_err());
        gate.leave();
        entered.recv().expect("one is in");
        assert!(entered.try_recv().is_err());
        gate.resize(2);
        entered.recv().expect("both are in");
    }
}
