//! Balancers with their own control sides, and the messages between them.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use equipoise_core::{AdminState, Generation, Health, Weight};
use equipoise_packet::FlowScheduler::{self, LeastConnection, Maglev, RoundRobin};
use equipoise_packet::control::{Ack, Collected, FleetMessage, Position};
use equipoise_packet::{BackendSpec, Capacity, FlowTags, Protocol, Snapshot, Standing, VipSpec};

use crate::random::Random;
use crate::world::{
    ACK, Backend, FIN, Packet, SYN, World, address_of, backend, settings, tcp, vip,
};

const STEP: Duration = Duration::from_millis(10);
/// Time of a message on its way.
const ON_THE_WAY_MS: u32 = 10;
/// Longest difference between the times at which balancers learn a change of a pool.
const SKEW_MS: u32 = 300;
/// The stated bound: from a flow's first packet until every balancer keeps it, with a lost message.
/// A balancer that does not know the flow's backend yet learns it with the change of the pool.
const EXCHANGE_MS: u32 = 500;
/// Time in which received flows are published.
const PUBLISH_MS: u32 = 300;
const BACKENDS: Backend = 24;

const VIPS: [(FlowScheduler, Protocol); 5] = [
    (Maglev, Protocol::Tcp),
    (RoundRobin, Protocol::Tcp),
    (LeastConnection, Protocol::Tcp),
    (Maglev, Protocol::Udp),
    (RoundRobin, Protocol::Udp),
];

#[derive(Clone, Copy)]
struct Flow {
    client: u32,
    vip: u8,
    home: Backend,
    /// How often the home had been gone when the flow came there.
    gone_before: u32,
    opened_ms: u32,
    /// Balancer that got its first packet.
    opened_at: usize,
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) packets: u64,
    pub(crate) violations: u64,
    /// Packets of flows that are younger than the exchange.
    young: u64,
    young_elsewhere: u64,
    pub(crate) changes: u64,
    pub(crate) splits: u64,
    joined: u64,
    died: u64,
    lost: u64,
    pub(crate) first: Option<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets of established flows, {} to another backend; within {EXCHANGE_MS} ms {} packets, {} to another \
             backend; {} re-splits, {} changes of pools, {} balancers died, {} joined, {} messages lost; first {:?}",
            self.packets,
            self.violations,
            self.young,
            self.young_elsewhere,
            self.splits,
            self.changes,
            self.died,
            self.joined,
            self.lost,
            self.first
        )
    }
}

/// A connection from one balancer to another, with at most one message on its way.
#[derive(Default)]
struct Link {
    position: Position,
    /// When it arrives, the message, and the position after it.
    message: Option<(u32, Vec<u8>, Position)>,
}

struct Balancer {
    world: World,
    /// By sender.
    links: Vec<Link>,
    /// Snapshots on their way: when they are applied.
    snapshots: VecDeque<(u32, Snapshot)>,
    /// From when on it receives packets; `None`: it waits until it has all flows.
    serves_at_ms: Option<u32>,
}

struct Model {
    balancers: Vec<Option<Balancer>>,
    random: Random,
    split: u64,
    flows: Vec<Flow>,
    vips: Vec<VipSpec>,
    /// By VIP and backend: how often it was gone, and whether it is.
    gone: Vec<[(u32, bool); BACKENDS as usize]>,
    generation: u64,
    next_client: u32,
    ms: u32,
    found: Found,
}

/// With room for flows that have ended and are not forgotten yet.
fn capacity(flows: usize) -> Capacity {
    Capacity {
        flows: 40 * flows as u32,
        pins: 30 * flows as u32,
        pending: 1 << 15,
        services: 8,
        backends: 256,
        prefixes: 1024,
        full_nat_flows: 0,
        rings: 16,
        ring_entries: 4093,
        cpus: 2,
        log_events: 1 << 14,
        sample_every: 0,
        tags: FlowTags::Long,
    }
}

impl Model {
    fn new(balancers: usize, flows: usize, seed: u64) -> Model {
        let vips = (1..).zip(VIPS).map(|(number, (scheduler, protocol))| {
            let pool: Vec<Backend> = (0..6).collect();
            VipSpec { protocol, ..vip(number, scheduler, &pool) }
        });
        let mut model = Model {
            balancers: (0..balancers).map(|_| None).collect(),
            random: Random(seed),
            split: seed,
            flows: Vec::new(),
            vips: vips.collect(),
            gone: vec![[(0, false); BACKENDS as usize]; VIPS.len() + 1],
            generation: 1,
            next_client: 0,
            ms: 0,
            found: Found::default(),
        };
        for number in 0..balancers {
            model.join(number, flows);
            model.balancers[number].as_mut().unwrap().serves_at_ms = Some(0);
        }
        for _ in 0..300 {
            model.time_goes_on();
        }
        model
    }

    /// A balancer begins, without flows.
    fn join(&mut self, number: usize, flows: usize) {
        let mut world = World::new(1, capacity(flows), settings());
        let now = world.now;
        world.control().share(now);
        let snapshot =
            Snapshot { generation: Generation(self.generation), vips: self.vips.clone() };
        world.control().apply(&snapshot, now).unwrap();
        let links = self.balancers.iter().map(|_| Link::default()).collect();
        let snapshots = VecDeque::new();
        self.balancers[number] = Some(Balancer { world, links, snapshots, serves_at_ms: None });
        // The others connect to it anew.
        for (from, other) in self.balancers.iter_mut().enumerate() {
            if from != number
                && let Some(other) = other
            {
                other.links[number] = Link::default();
            }
        }
    }

    fn die(&mut self, number: usize) {
        self.balancers[number] = None;
        self.found.died += 1;
    }

    /// Messages arrive, and new ones are sent.
    fn exchange(&mut self) {
        for to in 0..self.balancers.len() {
            for from in 0..self.balancers.len() {
                if from == to || self.balancers[from].is_none() || self.balancers[to].is_none() {
                    continue;
                }
                self.deliver(from, to);
                self.send(from, to);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let balancer = self.balancers[to].as_mut().unwrap();
        let link = &mut balancer.links[from];
        let Some((at, bytes, mut position)) = link.message.take() else { return };
        if at > self.ms {
            link.message = Some((at, bytes, position));
            return;
        }
        if self.random.one_in(20) {
            // The connection fails, before or after the message arrives.
            self.found.lost += 1;
            if self.random.one_in(2) {
                return;
            }
        }
        let now = balancer.world.now;
        let ack = balancer.world.control().take_in(&FleetMessage::decode(&bytes).unwrap(), now, 0);
        position.asked = Ack::decode(&ack.encode()).unwrap().asks;
        balancer.links[from].position = position;
    }

    fn send(&mut self, from: usize, to: usize) {
        let link = &self.balancers[to].as_ref().unwrap().links[from];
        if link.message.is_some() {
            return;
        }
        let position = link.position.clone();
        let sender = self.balancers[from].as_mut().unwrap();
        let now = sender.world.now;
        let Collected { message, position, .. } = sender.world.control().collect(&position, now);
        let sent = (self.ms + ON_THE_WAY_MS, message.encode(), position);
        self.balancers[to].as_mut().unwrap().links[from].message = Some(sent);
    }

    fn time_goes_on(&mut self) {
        self.ms += STEP.as_millis() as u32;
        let ms = self.ms;
        for balancer in self.balancers.iter_mut().flatten() {
            while balancer.snapshots.front().is_some_and(|(at, _)| *at <= ms) {
                let (_, snapshot) = balancer.snapshots.pop_front().unwrap();
                let now = balancer.world.now;
                balancer.world.control().apply(&snapshot, now).unwrap();
            }
            balancer.world.run(STEP);
        }
        self.exchange();
        self.admit_joined();
    }

    /// Lets balancers serve that have all flows of all others, and have had time to publish them.
    fn admit_joined(&mut self) {
        let alive: Vec<usize> =
            (0..self.balancers.len()).filter(|&it| self.balancers[it].is_some()).collect();
        for &number in &alive {
            let balancer = self.balancers[number].as_mut().unwrap();
            let has_all = alive.iter().filter(|&&from| from != number).all(|&from| {
                let position = &balancer.links[from].position;
                position.asked > 0 && position.swept >= position.asked
            });
            if has_all && balancer.serves_at_ms.is_none() {
                balancer.serves_at_ms = Some(self.ms + PUBLISH_MS);
                self.found.joined += 1;
            }
        }
    }

    fn serves(&self, number: usize) -> bool {
        let at = self.balancers[number].as_ref().and_then(|it| it.serves_at_ms);
        at.is_some_and(|at| at <= self.ms)
    }

    /// The splitter's choice among the balancers that serve.
    fn balancer(&self, client: u32) -> usize {
        let all = 0..self.balancers.len();
        let serving: Vec<usize> = all.filter(|&it| self.serves(it)).collect();
        let mixed = Random(self.split ^ u64::from(client)).next();
        serving[(mixed >> 32) as usize % serving.len()]
    }

    fn send_packet(&mut self, flow: &Flow, flags: u8) -> Option<Backend> {
        let balancer = self.balancer(flow.client);
        let protocol = VIPS[usize::from(flow.vip) - 1].1;
        let packet = Packet { protocol, ..tcp(flow.vip, flow.client, flags) };
        self.balancers[balancer].as_mut().unwrap().world.send(packet)
    }

    fn gone(&self, vip: u8, home: Backend) -> (u32, bool) {
        self.gone[usize::from(vip)][usize::from(home)]
    }

    fn open(&mut self) {
        let vip = 1 + self.random.below(VIPS.len()) as u8;
        self.next_client += 1;
        let (client, opened_ms) = (self.next_client, self.ms);
        let opened_at = self.balancer(client);
        let mut flow = Flow { client, vip, home: 0, gone_before: 0, opened_ms, opened_at };
        let Some(home) = self.send_packet(&flow, SYN) else { return };
        (flow.home, flow.gone_before) = (home, self.gone(vip, home).0);
        if self.gone(vip, home).1 || self.send_packet(&flow, ACK) != Some(home) {
            return;
        }
        self.flows.push(flow);
    }

    fn check(&mut self, at: usize, flags: u8) -> bool {
        let flow = self.flows[at];
        if self.gone(flow.vip, flow.home).0 != flow.gone_before {
            return false;
        }
        let answer = self.send_packet(&flow, flags);
        let age = self.ms - flow.opened_ms;
        let is_young = age < EXCHANGE_MS + SKEW_MS;
        let is_home = answer == Some(flow.home);
        let found = &mut self.found;
        if is_young {
            found.young += 1;
            found.young_elsewhere += u64::from(!is_home);
            return is_home;
        }
        found.packets += 1;
        if !is_home {
            found.violations += 1;
            let balancer = self.balancer(flow.client);
            let totals =
                self.balancers.iter_mut().flatten().map(|it| it.world.control().fleet_totals());
            let totals: Vec<_> = totals.collect();
            let protocol = VIPS[usize::from(flow.vip) - 1].1;
            let packet = Packet { protocol, ..tcp(flow.vip, flow.client, ACK) };
            let hows = self
                .balancers
                .iter()
                .flatten()
                .map(|it| (it.serves_at_ms, it.world.how(0, packet)));
            let hows: Vec<_> = hows.collect();
            let what = format!(
                "flow {} of VIP {}, {age} ms old, went from {} to {answer:?} at balancer {balancer} at {} ms {hows:?} {totals:?}",
                flow.client, flow.vip, flow.home, self.ms
            );
            self.found.first.get_or_insert(what);
        }
        is_home
    }

    /// Changes one pool, on each balancer a little later.
    fn change(&mut self) {
        let number = 1 + self.random.below(VIPS.len()) as u8;
        let (what, weight) = (self.random.below(8), 1 + self.random.below(20) as u16);
        let joining = self.random.below(usize::from(BACKENDS)) as Backend;
        let which = self.random.next() as usize;
        let pool = &mut self.vips[usize::from(number) - 1].backends;
        let at = which % pool.len().max(1);
        match what {
            0 | 1 if !pool.iter().any(|it| it.address == address_of(joining)) => {
                pool.push(BackendSpec { ..backend(joining) });
            }
            2 if pool.len() > 3 => drop(pool.remove(at)),
            3 if !pool.is_empty() => pool[at].weight = Weight::new(weight).unwrap(),
            4 if !pool.is_empty() => pool[at].admin = AdminState::Drain,
            5 if pool.len() > 3 => pool[at].health = Health::Unhealthy,
            _ => pool
                .iter_mut()
                .for_each(|it| (it.admin, it.health) = (AdminState::Up, Health::Healthy)),
        }
        for backend in 0..BACKENDS {
            let spec = pool.iter().find(|it| it.address == address_of(backend));
            let is_gone = spec.is_some_and(|it| it.standing() == Standing::Gone);
            let (times, was_gone) = &mut self.gone[usize::from(number)][usize::from(backend)];
            *times += u32::from(is_gone != *was_gone);
            *was_gone = is_gone;
        }
        self.generation += 1;
        let snapshot =
            Snapshot { generation: Generation(self.generation), vips: self.vips.clone() };
        for balancer in self.balancers.iter_mut().flatten() {
            let last = balancer.snapshots.back().map_or(0, |(at, _)| *at);
            let at = (self.ms + self.random.below(SKEW_MS as usize) as u32).max(last);
            balancer.snapshots.push_back((at, snapshot.clone()));
        }
        self.found.changes += 1;
    }

    fn step(&mut self, opens: usize, flows_max: usize) {
        for _ in 0..opens {
            self.open();
        }
        for _ in 0..self.flows.len().min(40) {
            let at = self.random.below(self.flows.len());
            if !self.check(at, ACK) {
                self.flows.swap_remove(at);
            }
        }
        while self.flows.len() > flows_max {
            let at = self.random.below(self.flows.len());
            self.check(at, FIN);
            self.flows.swap_remove(at);
        }
        self.time_goes_on();
    }
}

/// Runs `balancers` with `flows` flows for some seconds of the model's time.
pub(crate) fn run(balancers: usize, flows: usize, seconds: u64, seed: u64) -> Found {
    let mut model = Model::new(balancers, flows, seed);
    let (mut next_change, mut next_split, mut next_member) = (300, 20, 500);
    for step in 0..seconds * 100 {
        model.step((flows / 200).max(1), flows);
        if step >= next_change {
            model.change();
            next_change = step + 20 + model.random.below(250) as u64;
        }
        if step >= next_split {
            model.split = model.random.next();
            model.found.splits += 1;
            next_split = step + 5 + model.random.below(60) as u64;
        }
        if step >= next_member {
            let dead = model.balancers.iter().position(Option::is_none);
            let serving = (0..balancers).filter(|&it| model.serves(it)).count();
            match dead {
                Some(number) => model.join(number, flows),
                // A flow that only the dying one knew is lost with it: the exchange ends first.
                None if serving == balancers => {
                    let number = model.random.below(balancers);
                    model.retire(number);
                }
                None => {}
            }
            next_member = step + 150 + model.random.below(200) as u64;
        }
    }
    // Once more, every flow.
    for _ in 0..200 {
        model.time_goes_on();
    }
    for at in 0..model.flows.len() {
        model.check(at, ACK);
    }
    model.found
}

impl Model {
    /// Kills a balancer. Flows that it opened within the exchange time are not counted: no other
    /// balancer knows them.
    fn retire(&mut self, number: usize) {
        let (young, ms) = (EXCHANGE_MS + SKEW_MS, self.ms);
        self.flows.retain(|flow| flow.opened_at != number || ms - flow.opened_ms >= young);
        self.die(number);
    }
}
