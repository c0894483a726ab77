//! Checkpoints in a run: what workers and clients say about them, and the property that they keep.

use rand::RngExt;

use crate::controller::Controller;
use crate::ids::{Incarnation, SliceId};
use crate::message::{Covered, Keeps};
use crate::numbering::Numbering;
use crate::sim::Folder;
use crate::sim::node::{Node, Work};
use crate::sim::world::{Event, World};
use crate::transport::FolderTask;

impl Node {
    /// Queues a snapshot before the waiting items, as `Driver` does.
    pub(super) fn queue_snapshot(&mut self, slice: SliceId, number: u64) {
        let queue = &mut self.queues.entry(slice).or_default().0;
        let is_state = |work: &Work| !matches!(work, Work::Item(_));
        let after = queue.iter().rposition(is_state).map_or(0, |last| last + 1);
        queue.insert(after, Work::Snapshot(number));
    }
}

impl World {
    /// Work for the folder takes some time. A process that ends may or may not have done it.
    pub(super) fn folder_task(&mut self, node: usize, task: FolderTask) {
        let process = self.nodes[node].process;
        let wait = self.rng.random_range(50..5_000);
        self.after(wait, Event::Folder { node, process, task });
    }

    pub(super) fn do_folder_task(&mut self, node: usize, process: u64, task: FolderTask) {
        let (now, at) = (self.clock(), &mut self.nodes[node]);
        let lives = at.alive && at.process == process;
        if !lives && self.rng.random_range(0..2) == 0 {
            return;
        }
        let fails = self.scenario.folder == Folder::Fails && self.rng.random_range(0..3) == 0;
        // A failed write may take effect as well.
        let takes_effect = !fails || self.rng.random_range(0..2) == 0;
        match task {
            FolderTask::Store(slice, new) => {
                let version = new.version;
                let before = self.folder.get(&slice).map(|stored| stored.version);
                if takes_effect && before < Some(version) {
                    self.folder.insert(slice, new);
                }
                if lives {
                    at.worker.stored(now, slice, version, !fails);
                }
            }
            FolderTask::Load(slice, epoch, _) => {
                let stored = self.folder.get(&slice).filter(|_| !fails).cloned();
                if lives {
                    at.worker.loaded(now, slice, epoch, stored);
                }
            }
        }
        if lives {
            self.work(node);
        }
    }

    /// A worker has committed a checkpoint.
    pub(super) fn committed(&mut self, node: usize, covered: &Covered) {
        self.judge.verdict.checkpoints += 1;
        let announced = self.announced.entry(covered.slice).or_default();
        *announced = covered.version.unwrap_or_default().max(*announced);
        self.say_covered(node, covered);
    }

    pub(super) fn covered(&mut self, client: usize, covered: Covered) {
        let numbering = Numbering::new(self.scenario.slices);
        self.clients[client].protocol.covered(&[covered], &numbering);
    }

    /// The answer of a client has arrived.
    pub(super) fn answered(&mut self, node: usize, keeps: &Keeps) {
        let now = self.clock();
        if self.nodes[node].alive {
            self.nodes[node].worker.keeps(now, keeps);
            self.work(node);
            self.ask_lacking(node);
        }
    }

    /// A worker says what is in a checkpoint. Some clients miss it.
    fn say_covered(&mut self, node: usize, covered: &Covered) {
        for client in 0..self.clients.len() {
            if self.is_apart(self.clients[client].id, node) {
                continue;
            }
            if self.rng.random_range(0..1000) >= self.scenario.dropped_permille {
                let delay = self.rng.random_range(10..2_000);
                self.after(delay, Event::Covered { client, covered: covered.clone() });
            }
        }
    }

    /// A worker asks for the items that clients keep and that it lacks.
    fn ask_lacking(&mut self, node: usize) {
        let lacks = self.nodes[node].worker.lacking(usize::MAX);
        if lacks.is_empty() {
            return;
        }
        for client in 0..self.clients.len() {
            if self.rng.random_range(0..1000) >= self.scenario.dropped_permille {
                let delay = self.rng.random_range(10..500);
                self.after(delay, Event::Lacks { client, lacks: lacks.clone() });
            }
        }
    }

    /// Whether each checkpoint that clients know is still there without the node: at a keeper,
    /// or in the state of an owner.
    pub(super) fn is_state_safe_without(&self, victim: usize) -> bool {
        if self.scenario.checkpoint_us.is_none() || self.scenario.folder == Folder::Works {
            return true;
        }
        let others = || {
            let others = self.nodes.iter().enumerate().filter(|(number, _)| *number != victim);
            others.map(|(_, node)| node).filter(|node| node.alive)
        };
        self.announced.iter().all(|(slice, version)| {
            let is_kept = others().any(|node| node.worker.kept(*slice) >= Some(*version));
            let lives = |incarnation| others().any(|node| node.worker.incarnation() == incarnation);
            is_kept || others().any(|node| node.worker.has_state(*slice, lives))
        })
    }

    /// Whether every slice's state is with an owner that lives, and contains all that there is.
    pub(super) fn is_restored(&self) -> bool {
        if self.scenario.checkpoint_us.is_none() {
            return true;
        }
        let idle = |node: &Node| {
            let waits =
                node.queues.values().any(|(queue, busy)| !busy.is_empty() || !queue.is_empty());
            !node.alive || !waits && node.worker.recovering().next().is_none()
        };
        let lives = |incarnation: Incarnation| {
            let node = &self.nodes[incarnation.worker.0 as usize];
            node.alive && node.worker.incarnation() == incarnation
        };
        let owned = |c: &Controller<_>| c.table().values().all(|row| row.owner.is_some_and(lives));
        self.nodes.iter().all(idle) && self.controller.as_ref().is_some_and(owned)
    }

    /// Each state is that of a run without faults: every item is in it, once, in its client's
    /// order.
    pub(super) fn judge_states(&mut self) {
        let owners: Vec<_> = self
            .controller
            .iter()
            .flat_map(|c| c.table().iter().map(|(slice, row)| (*slice, row.owner)))
            .collect();
        for (slice, owner) in owners {
            let state = owner
                .map(|incarnation| self.judge.state_of(incarnation, slice))
                .unwrap_or_default();
            for client in 0..self.clients.len() as u64 {
                let has: Vec<_> =
                    state.iter().filter(|item| item.0 == client).map(|item| item.1).collect();
                let wants = self.judge.published.get(&(slice, client)).cloned().unwrap_or_default();
                if has != wants {
                    self.judge.fault(format!(
                        "{slice:?} of {owner:?}: the state has {has:?} of client {client}, not {wants:?}"
                    ));
                }
            }
        }
    }
}
