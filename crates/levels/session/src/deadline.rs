//! Time-outs of a thread's tasks: a dense array, scanned every tick.
//!
//! A request moves its connection's deadline several times and nearly none ever fires, so moving
//! must cost a store. A timer wheel (tokio's) takes a lock and relinks an entry each time; this
//! array is scanned at 40 Hz, 4 bytes a connection, which for a million connections is under 1 % of
//! a core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How often deadlines are looked at: their resolution.
pub(crate) const TICK: Duration = Duration::from_millis(25);

const IDLE: u32 = u32::MAX;
const FIRED: u32 = u32::MAX - 1;
const LATEST: u32 = u32::MAX - 2;

/// The deadlines of one thread.
pub(crate) struct Deadlines {
    epoch: Instant,
    slots: RefCell<Slots>,
    now: Cell<Instant>,
    asleep: Cell<bool>,
    wake: Notify,
}

#[derive(Default)]
struct Slots {
    due_tick: Vec<u32>,
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Deadlines {
    pub(crate) fn new() -> Rc<Deadlines> {
        let epoch = Instant::now();
        Rc::new(Deadlines {
            epoch,
            now: Cell::new(epoch),
            slots: RefCell::default(),
            asleep: Cell::new(false),
            wake: Notify::new(),
        })
    }

    /// A deadline of the task that `waker` wakes, not set yet.
    pub(crate) fn register(self: &Rc<Self>, waker: Waker) -> Deadline {
        let mut slots = self.slots.borrow_mut();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.due_tick.push(IDLE);
            slots.wakers.push(None);
            slots.wakers.len() - 1
        });
        slots.wakers[index] = Some(waker);
        drop(slots);
        Deadline { owner: self.clone(), index }
    }

    /// Fires deadlines until the thread ends; sleeps while none is set.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.now.set(Instant::now());
            if !self.fire(self.tick_of(self.now.get())) {
                self.asleep.set(true);
                self.wake.notified().await;
                self.asleep.set(false);
            }
        }
    }

    /// The time of the last tick, without reading the clock: up to a tick ago while a deadline is
    /// set, older while none is.
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Wakes the tasks that are due. Returns whether any deadline is still set.
    fn fire(&self, now_tick: u32) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Slots { due_tick, wakers, .. } = &mut *slots;
        let mut set = false;
        for (due, waker) in due_tick.iter_mut().zip(wakers) {
            if *due <= now_tick {
                *due = FIRED;
                if let Some(waker) = waker {
                    waker.wake_by_ref();
                }
            }
            set |= *due <= LATEST;
        }
        set
    }

    /// Wakes every task that has a deadline here, set or not.
    pub(crate) fn wake_all(&self) {
        self.slots.borrow().wakers.iter().flatten().for_each(Waker::wake_by_ref);
    }

    fn tick_of(&self, at: Instant) -> u32 {
        let ticks = at.saturating_duration_since(self.epoch).as_millis() / TICK.as_millis();
        u32::try_from(ticks).unwrap_or(LATEST).min(LATEST)
    }
}

/// One task's deadline.
pub(crate) struct Deadline {
    owner: Rc<Deadlines>,
    index: usize,
}

impl Deadline {
    /// A deadline of the task that awaits this.
    pub(crate) async fn of_this_task(owner: &Rc<Deadlines>) -> Deadline {
        std::future::poll_fn(|cx| std::task::Poll::Ready(owner.register(cx.waker().clone()))).await
    }

    /// Sets it to `now + after`, up to a tick late, never early.
    pub(crate) fn set(&self, now: Instant, after: Duration) {
        let due =
            now.checked_add(after).map_or(LATEST, |at| self.owner.tick_of(at).saturating_add(1));
        self.owner.slots.borrow_mut().due_tick[self.index] = due.min(LATEST);
        if self.owner.asleep.get() {
            self.owner.wake.notify_one();
        }
    }

    /// Forgets it.
    pub(crate) fn clear(&self) {
        self.owner.slots.borrow_mut().due_tick[self.index] = IDLE;
    }

    /// Whether it has passed since it was last set.
    pub(crate) fn is_past(&self) -> bool {
        self.owner.slots.borrow().due_tick[self.index] == FIRED
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut slots = self.owner.slots.borrow_mut();
        slots.due_tick[self.index] = IDLE;
        slots.wakers[self.index] = None;
        slots.free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn fires_once_when_due_and_never_early() {
        let all = Deadlines::new();
        let count = Arc::new(Count::default());
        let deadline = all.register(count.clone().into());
        deadline.set(all.epoch, TICK * 3);
        assert!(all.fire(3), "a tick before, it is still set");
        assert!(!deadline.is_past());
        assert!(!all.fire(4));
        assert!(deadline.is_past());
        all.fire(5);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn moving_it_later_keeps_it_from_firing() {
        let all = Deadlines::new();
        let deadline = all.register(Arc::new(Count::default()).into());
        deadline.set(all.epoch, TICK);
        deadline.set(all.epoch, TICK * 100);
        assert!(all.fire(50));
        assert!(!deadline.is_past());
        deadline.clear();
        assert!(!all.fire(1000));
    }

    #[test]
    fn a_dropped_deadline_leaves_its_place_to_the_next() {
        let all = Deadlines::new();
        let first = all.register(Arc::new(Count::default()).into());
        let index = first.index;
        drop(first);
        assert_eq!(all.register(Arc::new(Count::default()).into()).index, index);
    }
}
