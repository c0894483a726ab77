//! Balancers that share nothing but their configuration, backends that know their flows, and a
//! router that spreads the flows anew.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use equipoise_packet::abi::{DecapsulationBackend, DecapsulationConstants};
use equipoise_packet::{Capacity, Limits, Memory, VipSpec};
use equipoise_packet_host::{HostEntry, HostProgram};

use crate::random::Random;
use crate::slots::with_second_chance;
use crate::world::{ACK, Backend, SYN, World, address_of, backend, capacity, settings, tcp};

const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const INGRESS: u32 = 1;
const BACKENDS: Backend = 24;
/// Longest difference between the times at which balancers learn a change of a pool.
const SKEW_MS: usize = 300;
/// Outer IPv4 destination in a frame.
const OUTER_DESTINATION: usize = 30;

struct Flow {
    client: u32,
    home: Backend,
    /// Changes of the pool since it was opened.
    changes: u32,
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) packets: u64,
    pub(crate) passed_on: u64,
    changes: u64,
    splits: u64,
    /// Flows that have lived through one change of the pool, and those of them that were lost.
    after_one: u64,
    pub(crate) lost_after_one: u64,
    after_two: u64,
    lost_after_two: u64,
    /// Flows known to any balancer at the end: the least and the most.
    known: [usize; 2],
    /// The first flow that was lost after one change.
    first: Option<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets, {} passed on, {} changes of the pool, {} re-splits; {} of {} flows lost after one change, {} of \
             {} after two; balancers know {} to {} flows; first {:?}",
            self.packets,
            self.passed_on,
            self.changes,
            self.splits,
            self.lost_after_one,
            self.after_one,
            self.lost_after_two,
            self.after_two,
            self.known[0],
            self.known[1],
            self.first
        )
    }
}

struct Model {
    balancers: Vec<World>,
    /// Connections of each backend.
    sockets: Vec<HashSet<u32>>,
    decapsulation: HostProgram,
    random: Random,
    split: u64,
    next_client: u32,
    vip: VipSpec,
    found: Found,
}

/// A balancer registers few of the flows.
fn small() -> Capacity {
    Capacity { flows: 1024, pins: 1024, ..capacity() }
}

impl Model {
    fn new(balancers: usize, seed: u64, second_chance: bool) -> Model {
        let pool: Vec<Backend> = (0..8).collect();
        let vip = VipSpec { second_chance, ..with_second_chance(&pool) };
        let mut worlds: Vec<World> =
            (0..balancers).map(|_| World::new(1, small(), settings())).collect();
        for world in &mut worlds {
            world.apply(vec![vip.clone()]);
            world.settle();
        }
        let limits = Limits::new(&small());
        let mut decapsulation = HostProgram::new(&Memory::anonymous(&limits).unwrap(), &limits);
        decapsulation.set_decapsulation(&DecapsulationConstants {
            gue_port: settings().gue_port.to_be_bytes(),
            ..crate::passing_on::constants()
        });
        for backend in 0..BACKENDS {
            let way = DecapsulationBackend { ifindex: INGRESS, ..DecapsulationBackend::default() };
            decapsulation.add_backend(address_of(backend), way);
        }
        Model {
            balancers: worlds,
            sockets: vec![HashSet::new(); usize::from(BACKENDS)],
            decapsulation,
            random: Random(seed),
            split: seed,
            next_client: 0,
            vip,
            found: Found::default(),
        }
    }

    /// Returns the backend whose socket gets the packet; for a SYN, the one that accepts it.
    fn send(&mut self, client: u32, flags: u8) -> Option<Backend> {
        let mixed = Random(self.split ^ u64::from(client)).next();
        let balancer = (mixed >> 32) as usize % self.balancers.len();
        let mut frame = self.balancers[balancer].frame(0, tcp(1, client, flags))?;
        self.found.packets += 1;
        for hop in 0..3 {
            let at =
                Backend::from_be_bytes(frame[OUTER_DESTINATION + 2..][..2].try_into().unwrap());
            let has_socket = self.sockets[usize::from(at)].contains(&client);
            self.decapsulation.set_socket(has_socket);
            let entry = HostEntry::Decapsulate;
            let (verdict, out) = self.decapsulation.run_entry(entry, 0, INGRESS, &frame);
            match verdict {
                XDP_PASS if flags == SYN || has_socket => return Some(at),
                // A backend without the flow resets it.
                XDP_PASS => return None,
                XDP_TX => assert!(hop < 2, "passed on by the last backend"),
                _ => panic!("verdict {verdict}"),
            }
            self.found.passed_on += 1;
            frame = out;
        }
        None
    }

    fn open(&mut self) -> Flow {
        self.next_client += 1;
        let client = self.next_client;
        let home = self.send(client, SYN).unwrap();
        self.sockets[usize::from(home)].insert(client);
        assert_eq!(self.send(client, ACK), Some(home), "its handshake");
        Flow { client, home, changes: 0 }
    }

    /// Sends a packet of each flow, and removes those that were lost.
    fn check(&mut self, flows: &mut Vec<Flow>) {
        flows.retain(|flow| {
            let is_kept = self.send(flow.client, ACK) == Some(flow.home);
            if !is_kept {
                self.sockets[usize::from(flow.home)].remove(&flow.client);
                match flow.changes {
                    0 | 1 => {
                        self.found.lost_after_one += 1;
                        let what = self.explain(flow);
                        self.found.first.get_or_insert(what);
                    }
                    _ => self.found.lost_after_two += 1,
                }
            }
            is_kept
        });
    }

    /// How each balancer would choose now, and where it would send the packet.
    fn explain(&mut self, flow: &Flow) -> String {
        let packet = tcp(1, flow.client, ACK);
        let mixed = Random(self.split ^ u64::from(flow.client)).next();
        let balancer = (mixed >> 32) as usize % self.balancers.len();
        let answers = self.balancers.iter_mut().map(|it| (it.how(0, packet), it.gue(0, packet)));
        let answers: Vec<_> = answers.collect();
        format!("flow {} of backend {}: balancer {balancer} of {answers:?}", flow.client, flow.home)
    }

    fn resplit(&mut self) {
        self.split = self.random.next();
        self.found.splits += 1;
    }

    /// Lets a backend join or leave, or changes a weight, on each balancer a little later.
    fn change(&mut self) {
        let joining = self.random.below(usize::from(BACKENDS)) as Backend;
        let at = self.random.below(self.vip.backends.len());
        let pool = &mut self.vip.backends;
        let is_in = pool.iter().any(|it| it.address == address_of(joining));
        match self.random.below(3) {
            0 if pool.len() > 4 => drop(pool.remove(at)),
            1 => pool[at].weight = equipoise_core::Weight::new(1 + (at as u16 % 3)).unwrap(),
            _ if is_in => drop(pool.remove(at)),
            _ => pool.push(backend(joining)),
        }
        self.found.changes += 1;
        for world in &mut self.balancers {
            let late = Duration::from_millis(self.random.below(SKEW_MS) as u64);
            world.run(late);
            world.apply(vec![self.vip.clone()]);
            world.run(Duration::from_millis(SKEW_MS as u64) - late);
        }
    }

    /// Sends packets of all flows while the balancers go through the phases of a change.
    fn live_through(&mut self, flows: &mut Vec<Flow>) {
        for _ in 0..4 {
            self.resplit();
            self.check(flows);
            self.balancers.iter_mut().for_each(|it| it.run(Duration::from_millis(600)));
        }
    }
}

/// `flows` flows live through two of the changes each.
pub(crate) fn run(
    balancers: usize,
    flows: usize,
    rounds: u64,
    seed: u64,
    second_chance: bool,
) -> Found {
    let mut model = Model::new(balancers, seed, second_chance);
    let (mut old, mut young): (Vec<Flow>, Vec<Flow>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        model.resplit();
        let opened: Vec<Flow> = (0..flows / 2).map(|_| model.open()).collect();
        for flow in &old {
            model.sockets[usize::from(flow.home)].remove(&flow.client);
        }
        old = std::mem::replace(&mut young, opened);
        model.balancers.iter_mut().for_each(World::settle);
        model.change();
        old.iter_mut().chain(&mut young).for_each(|flow| flow.changes += 1);
        model.found.after_one += young.len() as u64;
        model.found.after_two += old.len() as u64;
        model.live_through(&mut young);
        model.live_through(&mut old);
    }
    let known = model.balancers.iter_mut().map(World::flows);
    let known: Vec<usize> = known.collect();
    model.found.known = [*known.iter().min().unwrap(), *known.iter().max().unwrap()];
    model.found
}
