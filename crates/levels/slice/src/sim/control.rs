//! Control messages in transit, the controller, and crashes.

use rand::RngExt;

use crate::controller::{self, Connection, Controller, Loss, Member, Record};
use crate::ids::{Incarnation, SliceId, Term, WorkerId};
use crate::message::{Address, Envelope, Message};
use crate::sim::client::ItemId;
use crate::sim::node::step;
use crate::sim::world::{Event, World};
use crate::sim::{Faults, Folder, PROBE_US, Party};
use crate::worker::Sabotage;

impl World {
    pub(super) fn send(&mut self, envelope: Envelope<ItemId>) {
        if let Message::Tail { .. } = envelope.message {
            self.judge.verdict.tails += 1;
        }
        let fault = self.fault_at(&envelope);
        if fault == Some(Party::SenderBefore) {
            return self.crash(envelope.from);
        }
        if self.is_cut_off(envelope.from) || self.is_cut_off(envelope.to) {
            return;
        }
        // DDS repeats lost messages; the protocol relies on that only here.
        let is_probe = matches!(envelope.message, Message::Probe { .. } | Message::Alive { .. });
        let dropped = if is_probe { 0 } else { self.scenario.dropped_permille };
        let copies = match self.rng.random_range(0..1000) {
            roll if roll < dropped => 0,
            roll if roll < dropped + self.scenario.doubled_permille => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let slow = self.rng.random_range(0..10) == 0;
            let delay = self.rng.random_range(10..if slow { 6_000 } else { 500 });
            self.after(delay, Event::Control(envelope.clone()));
        }
        match fault {
            Some(Party::SenderAfter) => self.crash(envelope.from),
            Some(Party::Receiver) => self.crash(envelope.to),
            Some(Party::Controller) => self.crash(Address::Controller),
            _ => {}
        }
    }

    pub(super) fn is_cut_off(&self, address: Address) -> bool {
        match address {
            Address::Controller => false,
            Address::Worker(incarnation) => self
                .nodes
                .get(incarnation.worker.0 as usize)
                .is_some_and(|n| n.cut_off_until > self.now),
        }
    }

    pub(super) fn fault_at(&mut self, envelope: &Envelope<ItemId>) -> Option<Party> {
        let Faults::At { step: at, nth, party } = self.scenario.faults else { return None };
        if !self.begun || step(&envelope.message) != at {
            return None;
        }
        self.passed += 1;
        (self.passed == nth).then_some(party)
    }

    pub(super) fn arrives(&mut self, envelope: Envelope<ItemId>) {
        let now = self.clock();
        match envelope.to {
            Address::Controller => {
                if let Some(controller) = &mut self.controller {
                    controller.message(now, envelope);
                    self.control();
                }
            }
            Address::Worker(incarnation) => {
                let node = incarnation.worker.0 as usize;
                if self.nodes[node].alive {
                    if let Message::Recover { .. } | Message::Assign { after: Some(_), .. } =
                        envelope.message
                    {
                        self.judge.verdict.recovered += 1;
                    }
                    let before = self.nodes[node].worker.incarnation();
                    self.nodes[node].worker.message(now, envelope);
                    if self.nodes[node].worker.incarnation() != before {
                        self.judge.lost.insert(before);
                    }
                    self.work(node);
                }
            }
        }
    }

    pub(super) fn elect(&mut self) {
        self.term += 1;
        let (now, config) = (self.clock(), self.scenario.config());
        let (term, slices) = (Term(self.term), self.scenario.slices);
        // Notes that were not yet written when the last controller crashed are lost, from a random
        // one on.
        let written = self.rng.random_range(0..=self.noted.len());
        for record in std::mem::take(&mut self.noted).into_iter().take(written) {
            self.stored.apply(&record);
        }
        let mut controller = Controller::new(now, term, config, slices, &self.stored);
        controller.sabotage = self.scenario.sabotage;
        self.controller = Some(controller);
        (0..self.nodes.len()).for_each(|node| self.connect(node));
        self.control();
        self.after(1, Event::ControllerTick { term: self.term });
    }

    pub(super) fn control(&mut self) {
        while let Some(output) = self.controller.as_mut().and_then(Controller::poll) {
            match output {
                controller::Output::Record(record) => {
                    self.noted.push(record);
                    self.write();
                }
                controller::Output::Note(record) => {
                    if let Record::Owned(..) = record {
                        self.judge.verdict.moved += 1;
                    }
                    self.noted.push(record);
                    if self.rng.random_range(0..8) == 0 {
                        self.write();
                    }
                }
                controller::Output::Send(envelope) => self.send(envelope),
            }
        }
    }

    /// Writes all notes to the store.
    fn write(&mut self) {
        for record in std::mem::take(&mut self.noted) {
            if let Record::Lost(incarnation) = &record {
                self.judge.gives_up(*incarnation);
                let is_loss =
                    |m: &Member| m.incarnation == *incarnation && m.loss == Some(Loss::Closed);
                if self.controller.iter().flat_map(Controller::members).any(is_loss) {
                    self.judge.verdict.known_at_once += 1;
                }
            }
            if let Record::Resized { from, to } = &record {
                let counts = &mut self.judge.verdict;
                let count =
                    if to.slices > from.slices { &mut counts.split } else { &mut counts.joined };
                *count += 1;
            }
            let forgets = match record {
                Record::Lost(_) => Sabotage::ForgetLost,
                Record::Numbers(_) => Sabotage::ForgetNumbers,
                Record::Heard(_) => Sabotage::ForgetHeard,
                _ => Sabotage::None,
            };
            if forgets == Sabotage::None || self.scenario.sabotage != forgets {
                self.stored.apply(&record);
            }
        }
    }

    pub(super) fn move_some(&mut self) {
        if self.now >= self.until {
            return;
        }
        let gap = self.rng.random_range(1..2 * self.scenario.move_gap_us);
        self.after(gap, Event::Move);
        let now = self.clock();
        let Some(controller) = &mut self.controller else { return };
        let free: Vec<_> =
            controller.table().iter().filter(|(_, row)| row.busy.is_none()).collect();
        if free.is_empty() {
            return;
        }
        let (_, row) = free[self.rng.random_range(0..free.len())];
        let owner = row.owner;
        let many = self.rng.random_range(1..=3);
        let of_owner = free.iter().filter(|(_, row)| row.owner == owner).take(many);
        let slices: Vec<SliceId> = of_owner.map(|(slice, _)| **slice).collect();
        let target = WorkerId(self.rng.random_range(0..self.scenario.workers));
        // Refused if the worker is the owner, or not there.
        if controller.move_slices(now, &slices, target).is_ok() {
            self.judge.verdict.begun += 1;
        }
        self.control();
    }

    /// Requests a split or a join, and sometimes calls it off.
    pub(super) fn resize(&mut self) {
        if self.now >= self.until {
            return;
        }
        let gap = self.rng.random_range(2_000..60_000);
        self.after(gap, Event::Resize);
        let Some(controller) = &mut self.controller else { return };
        let has = controller.numbering().slices;
        let wanted = match self.rng.random_range(0..8) {
            0 => has,
            1..4 if has > 2 => has / 2,
            _ if has < 4 * self.scenario.slices => has * 2,
            _ => has / 2,
        };
        if controller.resizing().is_some() && wanted != has {
            return;
        }
        if let Err(refused) = controller.resize(wanted) {
            self.judge.fault(refused.to_string());
        }
        self.control();
    }

    pub(super) fn random_fault(&mut self) {
        if self.now >= self.until {
            return;
        }
        if let Faults::Worker { .. } = self.scenario.faults {
            let node = self.rng.random_range(0..self.nodes.len());
            return self.crash(Address::Worker(self.nodes[node].worker.incarnation()));
        }
        let wait = self.rng.random_range(10_000..80_000);
        self.after(wait, Event::Fault);
        if self.scenario.faults == Faults::Paths {
            return self.part();
        }
        if self.scenario.faults == Faults::Pauses {
            let lasts = self.rng.random_range(36_000..150_000);
            self.controller_paused_until = self.controller_paused_until.max(self.now + lasts);
            self.judge.verdict.controller_pauses += 1;
            return;
        }
        let kinds = if self.scenario.connections { 5 } else { 4 };
        let kind = match self.scenario.faults {
            Faults::Everybody => self.rng.random_range(0..kinds),
            Faults::Kills => 1,
            Faults::KillsAndControllers => self.rng.random_range(0..4_u32).min(1),
            _ => 0,
        };
        let node = self.rng.random_range(0..self.nodes.len());
        if self.scenario.faults == Faults::ShortPauses {
            return self.pause_or_reset(node);
        }
        match kind {
            0 => self.crash(Address::Controller),
            1 if !self.is_state_safe_without(node) => {
                self.judge.verdict.unsafe_kills += 1;
            }
            1 => {
                self.crash(Address::Worker(self.nodes[node].worker.incarnation()));
                if self.scenario.folder == Folder::Works && self.rng.random_range(0..3) == 0 {
                    for other in 0..self.nodes.len() {
                        self.crash(Address::Worker(self.nodes[other].worker.incarnation()));
                    }
                }
            }
            4 => self.reset(node),
            kind => {
                let until = self.now + self.rng.random_range(5_000..80_000);
                let at = &mut self.nodes[node];
                if at.answers_until > self.now {
                    return;
                }
                let ends = if kind == 2 { &mut at.cut_off_until } else { &mut at.paused_until };
                // No pause becomes longer: its delayed events would be handled after later ones.
                if *ends <= self.now {
                    *ends = until;
                }
            }
        }
    }

    pub(super) fn crash(&mut self, who: Address) {
        match who {
            Address::Controller => {
                if let Some(crashed) = self.controller.take() {
                    self.judge.verdict.interrupted += crashed.handovers().len() as u64;
                    let wait = self.rng.random_range(1_000..20_000);
                    self.after(wait, Event::Elect);
                }
            }
            Address::Worker(incarnation) => {
                let node = incarnation.worker.0 as usize;
                if !self.nodes[node].alive || self.nodes[node].worker.incarnation() != incarnation {
                    return;
                }
                self.nodes[node].alive = false;
                self.judge.lost.insert(incarnation);
                self.judge.verdict.lost_workers += 1;
                if self.scenario.connections {
                    let wait = self.rng.random_range(10..500);
                    self.after(wait, Event::Disconnected(incarnation));
                }
                let wait = self.rng.random_range(1_000..90_000);
                self.after(wait, Event::Start { node });
            }
        }
    }

    /// The worker of `node` opens a connection, if the scenario has any; some attempts fail.
    pub(super) fn connect(&mut self, node: usize) {
        if !self.scenario.connections || self.rng.random_range(0..8) == 0 {
            return;
        }
        let (wait, started) = (self.rng.random_range(600..4_000), self.nodes[node].started);
        self.after(wait, Event::Connected { node, started });
    }

    pub(super) fn connected(&mut self, node: usize, started: u64) {
        let (now, at) = (self.clock(), &self.nodes[node]);
        let Some(controller) = &mut self.controller else { return };
        if at.alive && at.started == started {
            controller.connected(at.worker.incarnation());
        } else if !at.alive && self.rng.random_range(0..2) == 0 {
            // It had a connection to this controller before that was elected.
            controller.disconnected(now, at.worker.incarnation());
            self.control();
        }
    }

    pub(super) fn disconnected(&mut self, incarnation: Incarnation) {
        let now = self.clock();
        if let Some(controller) = &mut self.controller
            && controller.connection(incarnation) == Connection::Open
        {
            controller.disconnected(now, incarnation);
            self.control();
        }
    }

    /// A middlebox resets the connection of a running worker. The worker opens another after a
    /// while.
    fn reset(&mut self, node: usize) {
        let now = self.now;
        let until = now.max(self.controller_paused_until);
        let at = &mut self.nodes[node];
        if !at.alive || at.paused_until > now || at.cut_off_until > now {
            return;
        }
        // The controller may be paused before it sends the probe.
        at.answers_until = until + 2 * PROBE_US;
        let incarnation = at.worker.incarnation();
        self.judge.verdict.resets += 1;
        let wait = self.rng.random_range(10..500);
        self.after(wait, Event::Disconnected(incarnation));
        self.connect(node);
    }

    /// A pause is shorter than a lease, minus the time for claims and answers.
    fn pause_or_reset(&mut self, node: usize) {
        let lasts = self.rng.random_range(1_000..10_000);
        let at = &mut self.nodes[node];
        match self.rng.random_range(0..3) {
            0 if self.controller_paused_until <= self.now => {
                self.controller_paused_until = self.now + lasts;
            }
            1 if at.answers_until <= self.now && at.paused_until <= self.now => {
                at.paused_until = self.now + lasts;
            }
            _ => self.reset(node),
        }
    }
}
