//! A worker in its process: readers, queues, and the application.

use std::collections::{BTreeMap, VecDeque};

use rand::RngExt;

use crate::ids::{Group, HandoverId, Incarnation, SliceId, WorkerId};
use crate::message::{Item, Message};
use crate::numbering::Numbering;
use crate::sim::client::ItemId;
use crate::sim::world::{Event, World};
use crate::sim::{ITEM_DELAY_US_MAX, MATCH_DELAY_US_MAX, REPLY_DELAY_US_MAX};
use crate::transport::FolderTask;
use crate::worker::{self, Sabotage, Worker};

/// A reader of one group, from its opening.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    /// Unique number: items for an earlier reader do not arrive here.
    pub number: u64,
    pub opened: u64,
    /// By client, when it matched.
    pub matched: BTreeMap<u64, u64>,
}

/// A process. After its end another one starts.
#[derive(Debug)]
pub(super) struct Node {
    pub worker: Worker<ItemId>,
    pub alive: bool,
    /// Counts the processes started on this machine.
    pub started: u64,
    /// Control messages are lost until then.
    pub cut_off_until: u64,
    /// The process is paused until then, without noticing.
    pub paused_until: u64,
    /// Its connection was reset: until it had time to answer, it is neither paused nor cut off.
    pub answers_until: u64,
    pub readers: BTreeMap<Group, Reader>,
    /// By slice: the waiting work, and the keys of the work in progress.
    pub queues: BTreeMap<SliceId, (VecDeque<Work>, Vec<u64>)>,
    /// Number of times that the state of a slice was replaced.
    pub discards: BTreeMap<SliceId, u64>,
    pub fenced: bool,
    /// Distinguishes work of an earlier incarnation.
    pub process: u64,
}

/// Work of the application, in order.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Item(Item<ItemId>),
    Import(Option<Vec<u8>>),
    Snapshot(u64),
    Export(HandoverId),
}

/// Number of message kinds at which a process may crash.
pub(super) const STEPS: usize = 16;

/// The index of a message's kind.
pub(super) fn step<T>(message: &Message<T>) -> usize {
    match message {
        Message::Prepare { .. } => 0,
        Message::Ready { .. } => 1,
        Message::Release { .. } => 2,
        Message::Cut { .. } => 3,
        Message::Active { .. } => 4,
        Message::Drained { .. } => 5,
        Message::Tail { .. } => 6,
        Message::Closed { .. } => 7,
        Message::Abort { .. } => 8,
        Message::Aborted { .. } => 9,
        Message::Assign { .. } => 10,
        Message::Recover { .. } => 11,
        Message::End { .. } => 12,
        Message::Grant { .. } | Message::Claims(_) => 13,
        Message::Expel { .. } | Message::Refuse { .. } => 14,
        Message::Standby { .. } => 15,
        // No crash at these.
        Message::Probe { .. }
        | Message::Alive { .. }
        | Message::Resize { .. }
        | Message::Keepers { .. }
        | Message::Restore { .. }
        | Message::Snapshots { .. }
        | Message::Kept { .. }
        | Message::Ask { .. }
        | Message::Has { .. }
        | Message::Want { .. } => STEPS,
    }
}

impl Node {
    /// Removes the items of `slices` that were not started.
    fn recall(&mut self, slices: &[SliceId]) -> Vec<Item<ItemId>> {
        let mut items = Vec::new();
        for slice in slices {
            let Some((queue, _)) = self.queues.get_mut(slice) else { continue };
            for work in std::mem::take(queue) {
                match work {
                    Work::Item(item) => items.push(item),
                    work => queue.push_back(work),
                }
            }
        }
        items
    }
}

impl World {
    pub(super) fn start(&mut self, node: usize) {
        let incarnation =
            Incarnation { worker: WorkerId(node as u64), number: 1000 * (self.number + 1) };
        let worker = Worker::new(incarnation, self.scenario.config());
        let mut worker = worker.with_slices(self.scenario.slices);
        worker.sabotage = self.scenario.sabotage;
        let process = self.number;
        let new = Node {
            worker,
            alive: true,
            started: self.number,
            cut_off_until: 0,
            paused_until: 0,
            answers_until: 0,
            readers: BTreeMap::new(),
            queues: BTreeMap::new(),
            discards: BTreeMap::new(),
            fenced: true,
            process,
        };
        if node < self.nodes.len() {
            self.nodes[node] = new;
        } else {
            self.nodes.push(new);
        }
        let wait = self.rng.random_range(1..1_500);
        self.after(wait, Event::Tick { node, process });
        self.connect(node);
        self.work(node);
    }

    /// Carries out the outputs of the worker.
    pub(super) fn work(&mut self, node: usize) {
        loop {
            while let Some(output) = self.nodes[node].worker.poll() {
                if !self.nodes[node].alive {
                    return;
                }
                if self.trace && !matches!(output, worker::Output::Send(_)) {
                    eprintln!("{:>8} node {node}: {output:?}", self.now);
                }
                self.output(node, output);
            }
            if !self.start_work(node) {
                return;
            }
        }
    }

    pub(super) fn output(&mut self, node: usize, output: worker::Output<ItemId>) {
        let at = &mut self.nodes[node];
        match output {
            worker::Output::Send(envelope) => self.send(envelope),
            worker::Output::Execute(item) => {
                at.queues.entry(item.slice).or_default().0.push_back(Work::Item(item));
            }
            worker::Output::Answer(item) => {
                self.judge.verdict.answered_again += 1;
                let started = at.started;
                let reply = Event::Reply { node, started, item: item.payload };
                self.after(REPLY_DELAY_US_MAX / 2, reply);
            }
            worker::Output::Import { slice, state } => {
                at.queues.entry(slice).or_default().0.push_back(Work::Import(state));
            }
            worker::Output::Recall { handover, slices } => {
                let items = at.recall(&slices);
                self.judge.verdict.handed_over += items.len() as u64;
                let now = self.clock();
                self.nodes[node].worker.recalled(now, handover, items);
            }
            worker::Output::Snapshot { slice, number } => {
                at.queue_snapshot(slice, number);
            }
            worker::Output::Discard(slice) => {
                *at.discards.entry(slice).or_default() += 1;
                at.queues.entry(slice).or_default().0.clear();
            }
            worker::Output::Covered(covered) => self.committed(node, &covered),
            worker::Output::Store(slice, checkpoint) => {
                self.folder_task(node, FolderTask::Store(slice, checkpoint));
            }
            worker::Output::Load { slice, epoch, is_last } => {
                self.folder_task(node, FolderTask::Load(slice, epoch, is_last));
            }
            worker::Output::Export { handover, slice } => {
                at.queues.entry(slice).or_default().0.push_back(Work::Export(handover));
            }
            worker::Output::Subscribe(group) => {
                self.readers += 1;
                let number = self.readers;
                let reader = Reader { number, opened: self.now, matched: BTreeMap::new() };
                at.readers.insert(group, reader);
                let ready = self.rng.random_range(50..3_000);
                let matched = |settled| Event::Matched { node, reader: number, group, settled };
                self.after(ready, matched(false));
                self.after(MATCH_DELAY_US_MAX + ITEM_DELAY_US_MAX + 50, matched(true));
            }
            worker::Output::Unsubscribe(group) => {
                at.readers.remove(&group);
            }
            worker::Output::Renumber(numbering) => self.renumber(node, &numbering),
            worker::Output::Fence => at.fenced = true,
            worker::Output::Resume => at.fenced = false,
            worker::Output::Reset => {
                at.queues.clear();
                at.discards.clear();
                at.process = self.number + 1;
                self.number += 1;
                let process = at.process;
                self.judge.verdict.lost_workers += 1;
                self.after(1_500, Event::Tick { node, process });
                self.connect(node);
            }
        }
    }

    /// Sorts what waits at a node by the new numbers.
    fn renumber(&mut self, node: usize, numbering: &Numbering) {
        let at = &mut self.nodes[node];
        for (slice, (queue, busy)) in std::mem::take(&mut at.queues) {
            for key in busy {
                at.queues.entry(numbering.slice_of(key)).or_default().1.push(key);
            }
            for mut work in queue {
                let slice = match &mut work {
                    Work::Item(item) => {
                        item.slice = numbering.slice_of(item.key);
                        item.slice
                    }
                    _ => slice,
                };
                at.queues.entry(slice).or_default().0.push_back(work);
            }
        }
    }

    /// Starts waiting work. Returns whether the worker received states.
    pub(super) fn start_work(&mut self, node: usize) -> bool {
        let now = self.clock();
        let at = &mut self.nodes[node];
        // As in `Driver::start`: a paused process may not have noticed that its lease expired.
        let lapsed = now >= at.worker.lease_until() && at.worker.sabotage != Sabotage::NoFence;
        if at.fenced || lapsed || !at.alive {
            return false;
        }
        let (incarnation, process) = (at.worker.incarnation(), at.process);
        let ordered = !self.scenario.loses_workers();
        let kept = self.scenario.keeps_order();
        let (mut begun, mut snapshots, mut exports) = (Vec::new(), Vec::new(), Vec::new());
        for (slice, (queue, busy)) in &mut at.queues {
            while busy.is_empty()
                && let Some(work) = queue.pop_front()
            {
                match work {
                    Work::Item(item) => {
                        busy.push(item.key);
                        begun.push(item);
                    }
                    Work::Import(state) => self.judge.import(incarnation, *slice, state, ordered),
                    Work::Snapshot(number) => {
                        snapshots.push((*slice, number, self.judge.snapshot(incarnation, *slice)));
                    }
                    Work::Export(handover) => {
                        exports.push((*slice, handover, self.judge.export(incarnation, *slice)));
                    }
                }
            }
        }
        for item in begun {
            self.judge.begins(incarnation, SliceId(item.key as u32), item.payload, kept);
            let wait = self.rng.random_range(20..self.scenario.work_us_max);
            let discards = self.nodes[node].discards.get(&item.slice).copied().unwrap_or(0);
            self.after(wait, Event::Done { node, process, state: discards, item });
        }
        let gives = !snapshots.is_empty() || !exports.is_empty();
        for (slice, number, state) in snapshots {
            self.nodes[node].worker.snapshotted(now, slice, number, Some(state));
        }
        for (slice, handover, state) in exports {
            self.nodes[node].worker.exported(now, handover, slice, Some(state));
        }
        gives
    }

    pub(super) fn done(&mut self, node: usize, process: u64, discards: u64, item: Item<ItemId>) {
        let now = self.clock();
        let at = &mut self.nodes[node];
        if !at.alive || at.process != process {
            return;
        }
        // Items with one key need their order, whatever the slice.
        self.judge.ends(at.worker.incarnation(), SliceId(item.key as u32), item.payload);
        let slice = at.worker.numbering().slice_of(item.key);
        let busy = |(_, busy): &&mut (VecDeque<Work>, Vec<u64>)| busy.contains(&item.key);
        if let Some((_, busy)) = at.queues.values_mut().find(busy) {
            let at = busy.iter().position(|key| *key == item.key);
            at.map(|at| busy.swap_remove(at));
        }
        if discards == at.discards.get(&slice).copied().unwrap_or(0) {
            at.worker.processed(slice, item.writer, item.position);
            at.worker.finished(now, slice, item.writer, item.position);
        }
        let wait = self.rng.random_range(20..REPLY_DELAY_US_MAX);
        let started = self.nodes[node].started;
        self.after(wait, Event::Reply { node, started, item: item.payload });
        self.work(node);
    }
}
