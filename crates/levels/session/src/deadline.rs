//! Time-outs of a thread's tasks: a dense array, scanned every tick.
//!
//! A request moves its connection's deadline several times and nearly none ever fires, so moving
//! must cost a store. A timer wheel (tokio's) takes a lock and relinks an entry each time; this
//! array is scanned at 40 Hz, 4 bytes a connection, which for a million connections is under 1 % of
//! a core.
//!
//! Each scan looks at the process's memory, too. While that is short, tasks that hold memory for
//! slow clients have less time ([`Taking`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::memory::MemoryBound;

/// How often deadlines are looked at: their resolution.
pub(crate) const TICK: Duration = Duration::from_millis(25);

/// Ticks for which memory is held for a slow client while it is short.
const GIVE_WAY_TICKS: u32 = 200;

/// A client that takes as many bytes within [`GIVE_WAY_TICKS`] is not slow.
const QUICK_BYTES: u64 = 4 << 10;

const IDLE: u32 = u32::MAX;
const FIRED: u32 = u32::MAX - 1;
const LATEST: u32 = u32::MAX - 2;

/// The deadlines of one thread.
pub(crate) struct Deadlines {
    epoch: Instant,
    slots: RefCell<Slots>,
    now: Cell<Instant>,
    memory: MemoryBound,
    memory_is_short: Cell<bool>,
    asleep: Cell<bool>,
    wake: Notify,
}

#[derive(Default)]
struct Slots {
    due_tick: Vec<u32>,
    /// From which tick on a deadline fires if memory is short; [`IDLE`]: as usual.
    short_tick: Vec<u32>,
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Deadlines {
    pub(crate) fn new(memory: MemoryBound) -> Rc<Deadlines> {
        let epoch = Instant::now();
        Rc::new(Deadlines {
            epoch,
            now: Cell::new(epoch),
            slots: RefCell::default(),
            memory,
            memory_is_short: Cell::new(false),
            asleep: Cell::new(false),
            wake: Notify::new(),
        })
    }

    /// A deadline of the task that `waker` wakes, not set yet.
    pub(crate) fn register(self: &Rc<Self>, waker: Waker) -> Deadline {
        let mut slots = self.slots.borrow_mut();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.due_tick.push(IDLE);
            slots.short_tick.push(IDLE);
            slots.wakers.push(None);
            slots.wakers.len() - 1
        });
        slots.wakers[index] = Some(waker);
        drop(slots);
        Deadline { owner: self.clone(), index }
    }

    /// Fires deadlines until the thread ends; sleeps while none is set and memory is not short.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.now.set(Instant::now());
            self.look_at_memory();
            let is_any_set = self.fire(self.tick_of(self.now.get()));
            if !is_any_set && !self.memory_is_short.get() {
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

    /// Looks whether the process has more memory in use than it may.
    pub(crate) fn look_at_memory(&self) {
        self.memory_is_short.set(self.memory.is_exceeded());
    }

    /// Whether the process had more memory in use than it may at the last look.
    pub(crate) fn is_memory_short(&self) -> bool {
        self.memory_is_short.get()
    }

    /// Wakes the tasks that are due. Returns whether any deadline is still set.
    fn fire(&self, now_tick: u32) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Slots { due_tick, short_tick, wakers, .. } = &mut *slots;
        let mut set = false;
        let fire = |due: &mut u32, waker: &Option<Waker>| {
            *due = FIRED;
            if let Some(waker) = waker {
                waker.wake_by_ref();
            }
        };
        if self.memory_is_short.get() {
            let set_and_short = due_tick.iter_mut().zip(short_tick).zip(&*wakers);
            for ((due, short), waker) in set_and_short {
                if *due <= LATEST && *short <= now_tick {
                    fire(due, waker);
                }
            }
        }
        for (due, waker) in due_tick.iter_mut().zip(wakers) {
            if *due <= now_tick {
                fire(due, waker);
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

    /// Sees to it that it fires [`GIVE_WAY_TICKS`] after the first call of this, if memory is short
    /// then, whatever it is set to. Until [`Deadline::stand`].
    pub(crate) fn give_way(&self) {
        let now_tick = self.owner.tick_of(self.owner.now());
        let mut slots = self.owner.slots.borrow_mut();
        let short = &mut slots.short_tick[self.index];
        if *short == IDLE {
            *short = now_tick.saturating_add(GIVE_WAY_TICKS);
        }
    }

    /// Ends [`Deadline::give_way`].
    pub(crate) fn stand(&self) {
        self.owner.slots.borrow_mut().short_tick[self.index] = IDLE;
    }

    /// Forgets it.
    pub(crate) fn clear(&self) {
        let mut slots = self.owner.slots.borrow_mut();
        slots.due_tick[self.index] = IDLE;
        slots.short_tick[self.index] = IDLE;
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
        slots.short_tick[self.index] = IDLE;
        slots.wakers[self.index] = None;
        slots.free.push(self.index);
    }
}

/// How quickly a client takes its response.
#[derive(Default)]
pub(crate) struct Taking {
    /// Bytes taken since the client began to be behind, or was last found to be quick.
    bytes: u64,
}

impl Taking {
    /// Notes that the client has taken these bytes more; `is_behind`: others are held for it. While
    /// memory is short, `deadline` fires once the client has been behind and slow for a while.
    pub(crate) fn note(&mut self, deadline: &Deadline, bytes: u64, is_behind: bool) {
        self.bytes += bytes;
        if !is_behind || self.bytes >= QUICK_BYTES {
            self.bytes = 0;
            deadline.stand();
        }
        if is_behind {
            deadline.give_way();
        }
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
        let all = Deadlines::new(MemoryBound::NONE);
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
        let all = Deadlines::new(MemoryBound::NONE);
        let deadline = all.register(Arc::new(Count::default()).into());
        deadline.set(all.epoch, TICK);
        deadline.set(all.epoch, TICK * 100);
        assert!(all.fire(50));
        assert!(!deadline.is_past());
        deadline.clear();
        assert!(!all.fire(1000));
    }

    #[test]
    fn while_memory_is_short_slow_clients_have_less_time() {
        let all = Deadlines::new(MemoryBound::NONE);
        let register = || all.register(Arc::new(Count::default()).into());
        let deadlines = [(); 5].map(|()| register());
        let mut takings = [(); 5].map(|()| Taking::default());
        for deadline in &deadlines {
            deadline.set(all.epoch, TICK * 1000);
        }
        let [stalled, trickling, quick, level, other] = &deadlines;
        takings[0].note(stalled, 0, true);
        takings[1].note(trickling, 0, true);
        takings[2].note(quick, 0, true);
        takings[3].note(level, 0, true);
        all.now.set(all.epoch + TICK * GIVE_WAY_TICKS / 2);
        takings[0].note(stalled, 0, true);
        takings[1].note(trickling, QUICK_BYTES - 1, true);
        takings[2].note(quick, QUICK_BYTES, true);
        takings[3].note(level, 1, false);
        all.fire(GIVE_WAY_TICKS);
        assert!(!stalled.is_past(), "memory is not short");

        all.memory_is_short.set(true);
        all.fire(GIVE_WAY_TICKS - 1);
        assert!(!stalled.is_past());
        all.fire(GIVE_WAY_TICKS);
        assert!(stalled.is_past() && trickling.is_past());
        assert!(!quick.is_past());
        all.fire(GIVE_WAY_TICKS * 3 / 2);
        assert!(quick.is_past());
        all.fire(GIVE_WAY_TICKS * 3);
        assert!(!level.is_past() && !other.is_past());
    }

    #[test]
    fn a_dropped_deadline_leaves_its_place_to_the_next() {
        let all = Deadlines::new(MemoryBound::NONE);
        let first = all.register(Arc::new(Count::default()).into());
        let index = first.index;
        drop(first);
        assert_eq!(all.register(Arc::new(Count::default()).into()).index, index);
    }
}
