//! Tasks that wait, by slice.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::ids::SliceId;
use crate::message::Item;
use crate::numbering::Numbering;
use crate::transport::{Driver, Task};

/// The waiting tasks of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The slice.
    pub slice: SliceId,
    /// Number of tasks: waiting ones, and one in progress.
    pub tasks: usize,
    /// Time since the arrival of the first waiting task.
    pub age: Duration,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Tasks with the times of their arrival.
    pub(super) tasks: VecDeque<(Duration, Task<T>)>,
    pub(super) busy: Busy,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { tasks: VecDeque::new(), busy: Busy::default() }
    }
}

/// The tasks of a slice in progress, by key: one, or more if slices were joined since.
#[derive(Debug, Default)]
pub(super) struct Busy {
    one: Option<u64>,
    others: Vec<u64>,
}

impl Busy {
    pub(super) fn is_none(&self) -> bool {
        self.one.is_none() && self.others.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.len()
    }

    pub(super) fn begins(&mut self, key: u64) {
        if let Some(other) = self.one.replace(key) {
            self.others.push(other);
        }
    }

    pub(super) fn ends(&mut self, key: u64) {
        if self.one == Some(key) {
            self.one = self.others.pop();
        } else if let Some(at) = self.others.iter().position(|other| *other == key) {
            self.others.swap_remove(at);
        }
    }

    pub(super) fn keys(self) -> impl Iterator<Item = u64> {
        self.one.into_iter().chain(self.others)
    }
}

impl<T, N> Driver<T, N> {
    /// Removes all items of `slices` that were not started from the queues.
    pub(super) fn recall(&mut self, slices: &[SliceId]) -> Vec<Item<T>> {
        let mut items = Vec::new();
        for slice in slices {
            let Some(queue) = self.queues.get_mut(slice) else { continue };
            let mut left = VecDeque::new();
            for (since, task) in queue.tasks.drain(..) {
                match task {
                    Task::Execute(item) => items.push(item),
                    task => left.push_back((since, task)),
                }
            }
            queue.tasks = left;
            if queue.tasks.is_empty() {
                self.ready.remove(slice);
                if queue.busy.is_none() {
                    self.queues.remove(slice);
                }
            }
        }
        self.queued -= items.len();
        items
    }

    /// Forgets the tasks of the slice that wait, and does not count the one under way.
    pub(super) fn discard(&mut self, slice: SliceId) {
        *self.discards.entry(slice).or_default() += 1;
        if let Some(queue) = self.queues.get_mut(&slice) {
            self.queued -= queue.tasks.len();
            queue.tasks.clear();
            self.ready.remove(&slice);
            if queue.busy.is_none() {
                self.queues.remove(&slice);
            }
        }
    }

    pub(super) fn queue(&mut self, slice: SliceId, task: Task<T>) {
        let since = self.now;
        self.tasks_of(slice).push_back((since, task));
    }

    /// Queues a task before the waiting items of the slice, and after a state that waits.
    pub(super) fn queue_before_items(&mut self, slice: SliceId, task: Task<T>) {
        let since = self.now;
        let tasks = self.tasks_of(slice);
        let is_state = |(_, task): &(Duration, Task<T>)| !matches!(task, Task::Execute(_));
        let at = tasks.iter().rposition(is_state).map_or(0, |last| last + 1);
        tasks.insert(at, (since, task));
    }

    /// For one more task.
    pub(super) fn tasks_of(&mut self, slice: SliceId) -> &mut VecDeque<(Duration, Task<T>)> {
        let queue = self.queues.entry(slice).or_default();
        self.queued += 1;
        if queue.busy.is_none() {
            self.ready.insert(slice);
        }
        &mut queue.tasks
    }

    /// Assigns waiting tasks and those in progress to the new slices of their keys. In a joined
    /// slice, tasks keep the order of their arrival.
    pub(super) fn refile(&mut self, numbering: &Numbering) {
        let mut waiting = Vec::new();
        let mut queues: BTreeMap<SliceId, Queue<T>> = BTreeMap::new();
        for queue in std::mem::take(&mut self.queues).into_values() {
            for key in queue.busy.keys() {
                queues.entry(numbering.slice_of(key)).or_default().busy.begins(key);
            }
            waiting.extend(queue.tasks);
        }
        waiting.sort_by_key(|(since, _)| *since);
        for (since, mut task) in waiting {
            let slice = numbering.slice_of(task.key());
            if let Task::Execute(item) = &mut task {
                item.slice = slice;
            }
            queues.entry(slice).or_default().tasks.push_back((since, task));
        }
        let is_ready = |(_, queue): &(&SliceId, &Queue<T>)| queue.busy.is_none();
        self.ready = queues.iter().filter(is_ready).map(|(slice, _)| *slice).collect();
        self.queues = queues;
    }
}
