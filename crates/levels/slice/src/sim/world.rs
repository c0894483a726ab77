//! A run: a queue of events in simulated time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::controller::{Controller, Record, Stored};
use crate::ids::{Group, HandoverId, Incarnation, SliceId, Writer};
use crate::message::{Address, Covered, Envelope, Item, Keeps, Lacks, Message, SnapshotId};
use crate::numbering::Numbering;
use crate::sim::client::{Client, ItemId};
use crate::sim::judge::{Judge, Verdict};
use crate::sim::node::Node;
use crate::sim::{Faults, ITEM_DELAY_US_MAX, MATCH_DELAY_US_MAX, OrderKept, Scenario};
use crate::transport::FolderTask;
use crate::worker::{self, Checkpoint};

#[derive(Debug)]
pub(super) enum Event {
    Item {
        node: usize,
        reader: u64,
        item: Item<ItemId>,
    },
    Control(Envelope<ItemId>),
    Done {
        node: usize,
        process: u64,
        /// How often the slice's state had been replaced when it began.
        state: u64,
        item: Item<ItemId>,
    },
    Reply {
        node: usize,
        started: u64,
        item: ItemId,
    },
    WriterGone {
        node: usize,
        client: u64,
    },
    Matched {
        node: usize,
        reader: u64,
        group: Group,
        settled: bool,
    },
    Tick {
        node: usize,
        process: u64,
    },
    ControllerTick {
        term: u64,
    },
    Publish {
        client: usize,
    },
    Again {
        client: usize,
    },
    Asked {
        client: usize,
        node: usize,
        slices: Vec<SliceId>,
        numbering: Numbering,
    },
    Keeps {
        node: usize,
        keeps: Keeps,
    },
    /// A worker asks for items that it lacks.
    Lacks {
        client: usize,
        lacks: Vec<Lacks>,
    },
    /// Work for the folder of checkpoints is done, if the process lives.
    Folder {
        node: usize,
        process: u64,
        task: FolderTask,
    },
    /// A worker reports items in a checkpoint.
    Covered {
        client: usize,
        covered: Covered,
    },
    Join,
    Resize,
    Move,
    Fault,
    Start {
        node: usize,
    },
    /// The connection of a worker reaches the controller.
    Connected {
        node: usize,
        started: u64,
    },
    /// A connection closed.
    Disconnected(Incarnation),
    Elect,
}

struct At {
    time: u64,
    number: u64,
    event: Event,
}

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.number) == (other.time, other.number)
    }
}
impl Eq for At {}
impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// The state of a run.
pub(crate) struct World {
    pub(super) scenario: Scenario,
    pub(super) rng: SmallRng,
    pub(super) now: u64,
    pub(super) number: u64,
    events: BinaryHeap<Reverse<At>>,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) controller: Option<Controller<ItemId>>,
    pub(super) stored: Stored,
    /// Notes of the controller that are not yet in the store.
    pub(super) noted: Vec<Record>,
    pub(super) term: u64,
    /// When the last item of a client arrived at a node, by reader: the next arrives later.
    pub(super) arrived: HashMap<(u64, usize, u64), u64>,
    pub(super) readers: u64,
    /// Clients and nodes that are disconnected, and until when.
    pub(super) apart: HashMap<(u64, usize), u64>,
    /// The controller is paused until then, without noticing.
    pub(super) controller_paused_until: u64,
    pub(super) begun: bool,
    /// When publishing and moving end.
    pub(super) until: u64,
    pub(super) passed: u32,
    pub(super) trace: bool,
    pub(super) judge: Judge,
    /// The checkpoints that clients know, by slice.
    pub(super) announced: BTreeMap<SliceId, SnapshotId>,
    /// The folder of checkpoints.
    pub(super) folder: BTreeMap<SliceId, Checkpoint>,
}

impl World {
    /// One run, from its seed.
    pub(crate) fn run(scenario: Scenario) -> Verdict {
        let mut world = Self {
            rng: SmallRng::seed_from_u64(scenario.seed),
            now: 0,
            number: 0,
            events: BinaryHeap::new(),
            nodes: Vec::new(),
            clients: Vec::new(),
            controller: None,
            stored: Stored::default(),
            noted: Vec::new(),
            term: 0,
            arrived: HashMap::new(),
            readers: 0,
            apart: HashMap::new(),
            controller_paused_until: 0,
            begun: false,
            until: u64::MAX,
            passed: 0,
            trace: std::env::var_os("SLICE_SIM_TRACE").is_some(),
            judge: Judge::default(),
            announced: BTreeMap::new(),
            folder: BTreeMap::new(),
            scenario,
        };
        world.go();
        world.conclude()
    }

    fn go(&mut self) {
        for client in 0..self.scenario.clients {
            self.clients.push(Client::new(client, 0, &self.scenario));
        }
        for node in 0..self.scenario.workers as usize {
            self.start(node);
        }
        self.elect();
        while let Some(Reverse(At { time, number, event })) = self.events.pop() {
            self.now = time;
            self.happens(number, event);
            if !self.begun {
                self.begin_if_ready();
            } else if self.is_quiet() {
                return;
            }
            if self.now > 20_000_000 {
                return self.judge.fault("no end in sight".into());
            }
        }
    }

    /// Whether all items are published, executed and answered.
    fn is_quiet(&self) -> bool {
        if self.now < self.until || !self.events_hold_no_work() {
            return false;
        }
        let answered = !self.clients.iter().any(Client::has_pending);
        // The controller may still have to ask for moves in progress.
        let over = |c: &Controller<_>| !c.is_surveying() && c.handovers().is_empty();
        let over = self.controller.as_ref().is_some_and(over);
        let late =
            self.now > self.until + if self.scenario.loses_workers() { 3_000_000 } else { 600_000 };
        answered && over && self.is_restored() || late
    }

    fn events_hold_no_work(&self) -> bool {
        self.number.is_multiple_of(64)
    }

    fn begin_if_ready(&mut self) {
        let Some(controller) = &self.controller else { return };
        let owned =
            controller.table().values().all(|row| row.owner.is_some() && row.busy.is_none());
        // New slices move only after their first items, which no worker may have received, were
        // published again.
        let recovery = self.scenario.config().recovery.as_micros() as u64;
        let settled = self.now > recovery + 3 * (MATCH_DELAY_US_MAX + ITEM_DELAY_US_MAX);
        let here = controller.members().count() as u64 == self.scenario.workers;
        if !(owned && settled && here) {
            return;
        }
        self.begun = true;
        self.until = self.now + self.scenario.length_us;
        for client in 0..self.clients.len() {
            self.after(1, Event::Publish { client });
            self.after(1, Event::Again { client });
        }
        if self.scenario.resizes {
            self.after(1, Event::Resize);
        }
        for _ in 0..self.scenario.joining {
            let wait = self.rng.random_range(0..self.scenario.length_us);
            self.after(wait, Event::Join);
        }
        // There is always a first move, except where the order of each worker is checked.
        if self.scenario.keeps_order() != OrderKept::Each {
            self.after(1, Event::Move);
        }
        if !matches!(self.scenario.faults, Faults::None | Faults::Worker { .. } | Faults::At { .. })
        {
            let wait = self.rng.random_range(0..30_000);
            self.after(wait, Event::Fault);
        }
        if let Faults::Worker { after_us } = self.scenario.faults {
            self.after(after_us, Event::Fault);
        }
    }

    pub(super) fn after(&mut self, wait: u64, event: Event) {
        self.at(self.now + wait, event);
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse(At { time, number: self.number, event }));
    }

    pub(super) fn clock(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    /// Prints the event, to examine a seed.
    fn tell(&self, event: &Event) {
        let renewal = |m: &Message<ItemId>| matches!(m, Message::Claims(_) | Message::Grant { .. });
        match event {
            Event::Tick { .. }
            | Event::ControllerTick { .. }
            | Event::Again { .. }
            | Event::Asked { .. }
            | Event::Lacks { .. } => {}
            Event::Control(envelope) if renewal(&envelope.message) => {}
            event => eprintln!("{:>8} {event:?}", self.now),
        }
    }

    fn happens(&mut self, number: u64, event: Event) {
        if self.trace {
            self.tell(&event);
        }
        if let Some(until) = self.paused_until(&event) {
            // It keeps its number, as events at the end of the pause were created later.
            return self.events.push(Reverse(At { time: until, number, event }));
        }
        let now = self.clock();
        match event {
            Event::Item { node, reader, item } => {
                let at = &mut self.nodes[node];
                let open = at.readers.get(&item.writer.group).is_some_and(|r| r.number == reader);
                if at.alive && open {
                    at.worker.item(now, item);
                    self.work(node);
                }
            }
            Event::Control(envelope) => self.arrives(envelope),
            Event::Done { node, process, state, item } => self.done(node, process, state, item),
            Event::Folder { node, process, task } => self.do_folder_task(node, process, task),
            Event::Covered { client, covered } => self.covered(client, covered),
            Event::Reply { node, started, item } => self.reply_comes(node, started, item),
            Event::WriterGone { node, client } => self.lose_writers(node, client),
            Event::Matched { node, reader, group, settled } => {
                let at = &mut self.nodes[node];
                let open = at.readers.get(&group).is_some_and(|r| r.number == reader);
                if at.alive && open {
                    match settled {
                        true => at.worker.settled(now, group),
                        false => at.worker.subscribed(now, group),
                    }
                    self.work(node);
                }
            }
            Event::Tick { node, process } => {
                self.tick(node, process);
            }
            Event::ControllerTick { term } => {
                if self.term == term
                    && let Some(controller) = &mut self.controller
                {
                    controller.tick(now);
                    self.control();
                    self.after(1_500, Event::ControllerTick { term });
                }
            }
            Event::Publish { client } => self.publish_next(client),
            Event::Again { client } => self.publish_again(client),
            Event::Asked { client, node, slices, numbering } => {
                self.asked(client, node, &slices, &numbering);
            }
            Event::Keeps { node, keeps } => self.answered(node, &keeps),
            Event::Lacks { client, lacks } => self.clients[client].protocol.lacks(now, &lacks),
            Event::Join => {
                let id = self.clients.len() as u64;
                self.clients.push(Client::new(id, self.now, &self.scenario));
                let wait = self.rng.random_range(0..500);
                self.after(wait, Event::Publish { client: id as usize });
                self.after(1, Event::Again { client: id as usize });
            }
            Event::Move => self.move_some(),
            Event::Resize => self.resize(),
            Event::Fault => self.random_fault(),
            Event::Start { node } => self.start(node),
            Event::Connected { node, started } => self.connected(node, started),
            Event::Disconnected(incarnation) => self.disconnected(incarnation),
            Event::Elect => self.elect(),
        }
    }

    fn reply_comes(&mut self, node: usize, started: u64, item: ItemId) {
        // Replies that were not sent yet are lost with the worker.
        if !self.nodes[node].alive || self.nodes[node].started != started {
            self.judge.verdict.lost_replies += 1;
        } else if self.is_apart(item.0, node) {
            self.judge.verdict.lost_replies += 1;
            *self.judge.unanswered.entry(item).or_insert(0) += 1;
        } else {
            self.replied(item);
        }
    }

    fn lose_writers(&mut self, node: usize, client: u64) {
        let now = self.clock();
        let at = &mut self.nodes[node];
        for group in at.readers.keys().copied().filter(|_| at.alive) {
            at.worker.writer_gone(now, Writer { group, id: client });
        }
        self.work(node);
    }

    fn tick(&mut self, node: usize, process: u64) {
        let now = self.clock();
        let at = &mut self.nodes[node];
        if !at.alive || at.process != process {
            return;
        }
        let before = at.worker.incarnation();
        at.worker.tick(now);
        // It gave itself up.
        if at.worker.incarnation() != before {
            self.judge.lost.insert(before);
        }
        self.work(node);
        self.ask(node);
        self.after(1_500, Event::Tick { node, process });
    }

    /// The end of the pause of the process that the event is for, if it is paused.
    fn paused_until(&self, event: &Event) -> Option<u64> {
        let node = match event {
            Event::ControllerTick { .. }
            | Event::Connected { .. }
            | Event::Disconnected(_)
            | Event::Control(Envelope { to: Address::Controller, .. }) => {
                let until = self.controller_paused_until;
                return (until > self.now).then_some(until);
            }
            Event::Item { node, .. }
            | Event::Done { node, .. }
            | Event::Matched { node, .. }
            | Event::Keeps { node, .. }
            | Event::Tick { node, .. } => *node,
            Event::Control(Envelope { to: Address::Worker(incarnation), .. }) => {
                incarnation.worker.0 as usize
            }
            _ => return None,
        };
        let until = self.nodes.get(node)?.paused_until;
        (until > self.now).then_some(until)
    }

    fn conclude(mut self) -> Verdict {
        for node in &self.nodes {
            self.judge.verdict.late += node.worker.drops().of(worker::Reason::Late);
        }
        for client in &self.clients {
            for item in 1..client.next {
                let executed =
                    self.judge.executed.get(&(client.id, item)).cloned().unwrap_or_default();
                let name = (client.id, item);
                if executed.is_empty() {
                    let pending = client.protocol.pending().find(|(id, _)| *id == item);
                    self.judge.fault(format!("{name:?} was lost: {pending:?}"));
                } else if !client.replies.contains_key(&item) {
                    self.judge.fault(format!("{name:?} was never answered"));
                }
                // Every execution except the last must be by a lost worker.
                let lost = executed
                    .iter()
                    .filter(|incarnation| self.judge.lost.contains(incarnation))
                    .count();
                // Or its reply was lost in transit.
                let unanswered = self.judge.unanswered.get(&name).copied().unwrap_or(0);
                let lost = lost + unanswered;
                let once = self.scenario.checkpoint_us.is_none();
                if once && executed.len() > 1 && executed.len() > lost + 1 {
                    self.judge.fault(format!("{name:?} was executed by {executed:?}"));
                }
            }
        }
        let open: Vec<(HandoverId, &str)> = self
            .controller
            .iter()
            .flat_map(|c| c.handovers())
            .map(|(id, h)| (*id, h.state.name()))
            .collect();
        if !open.is_empty() {
            self.judge.fault(format!("not over: {open:?}"));
        }
        let stateful = self.scenario.order == crate::config::Order::Stateful;
        if stateful && !self.scenario.loses_workers() {
            let counted: u64 =
                (0..self.scenario.slices).map(|s| self.judge.states(SliceId(s))).sum();
            if counted != self.judge.verdict.items {
                let items = self.judge.verdict.items;
                self.judge.fault(format!("the states count {counted} of {items} items"));
            }
        }
        if self.scenario.checkpoint_us.is_some() {
            self.judge_states();
        }
        self.judge.verdict.runs = 1;
        self.judge.verdict
    }
}
