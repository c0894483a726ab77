#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use equipoise_core::{AdminState, Generation, Health, Weight};
use equipoise_testkit::packet::{BALANCER_MAC, Ip, flag};

use super::*;
use crate::abi::{FlowKey, Forward};
use crate::packet::Parsed;
use crate::snapshot::Sources;
use crate::twin::{Surroundings, Twin, Verdict};
use crate::{
    Access, BackendSpec, Capacity, FlowScheduler, Limits, Memory, NextHop, OnDown, OwnTimeouts,
    Ports, Protocol, Registry, Settings, Snapshot, Station, VipSpec,
};

const INGRESS: u32 = 1;
const VIP: [u8; 4] = [198, 51, 100, 10];
const BACKEND: [u8; 4] = [10, 0, 0, 17];
const STAYS: [u8; 4] = [10, 0, 0, 200];
const LEAVES: [u8; 4] = [10, 0, 0, 201];
const SECOND: u64 = 1_000_000_000;

/// A control side with a VIP of full-nat, and packets that the twin takes in place of the program.
struct World {
    control: Control,
    twin: Twin,
    begun: Instant,
    now_ns: u64,
    generation: u64,
}

impl World {
    fn new(sources: &[[u8; 4]]) -> World {
        let capacity = Capacity {
            flows: 4096,
            pins: 1024,
            pending: 4096,
            services: 8,
            backends: 64,
            full_nat_flows: 1024,
            rings: 24,
            ring_entries: 251,
            cpus: 1,
            ..Capacity::default()
        };
        let limits = Limits::new(&capacity);
        let memory = Memory::anonymous(&limits).unwrap();
        let registry = Registry::anonymous(capacity.flows).unwrap();
        let (twin, begun) = (Twin::new(memory.clone(), limits), Instant::now());
        let settings = Settings::default();
        let mut control = Control::new(vec![memory], capacity, registry, settings, begun).unwrap();
        let hop = NextHop {
            ifindex: INGRESS,
            destination_mac: Some([2; 6]),
            source_mac: BALANCER_MAC,
            mtu: 1500,
        };
        control.next_hops(&HashMap::from([(BACKEND.into(), hop)]));
        control.take_frames(&[Station { ifindex: INGRESS, mac: BALANCER_MAC }].into());
        let mut world = World { control, twin, begun, now_ns: 1 << 40, generation: 0 };
        world.apply(sources);
        world
    }

    /// Publishes a VIP with these source addresses.
    fn apply(&mut self, sources: &[[u8; 4]]) {
        self.generation += 1;
        let addresses = sources.iter().map(|it| (*it).into()).collect();
        let vip = VipSpec {
            address: VIP.into(),
            ports: Ports::One(80),
            protocol: Protocol::Tcp,
            forward: Forward::FullNat,
            key: FlowKey::FiveTuple,
            scheduler: FlowScheduler::Maglev,
            access: Access::default(),
            sources: Sources { addresses, absent: Vec::new(), port_first: 1024, port_last: 65535 },
            timeouts: OwnTimeouts::default(),
            quic: None,
            second_chance: false,
            backends: vec![BackendSpec {
                address: BACKEND.into(),
                port: None,
                weight: Weight::DEFAULT,
                admin: AdminState::Up,
                health: Health::Healthy,
                on_down: OnDown::Move,
                backup: false,
            }],
        };
        let snapshot = Snapshot { generation: Generation(self.generation), vips: vec![vip] };
        let now = self.now();
        self.control.apply(&snapshot, now).unwrap();
        self.run(4);
    }

    fn now(&self) -> Instant {
        self.begun + Duration::from_nanos(self.now_ns)
    }

    /// Lets seconds pass, and returns the addresses that are free then.
    fn run(&mut self, seconds: u64) -> Vec<IpAddr> {
        let mut free = Vec::new();
        for _ in 0..10 * seconds {
            self.now_ns += SECOND / 10;
            let now = self.now();
            self.control.tick(now);
            free.extend(self.control.release_sources(self.now_ns));
        }
        free
    }

    /// A SYN of the client with this port: the source address of its flow.
    fn open(&mut self, port: u16) -> IpAddr {
        let frame = Ip::between("192.0.2.1", "198.51.100.10").ttl(64);
        let frame = frame.tcp(port, 80, flag::SYN, b"").frame();
        let parsed = Parsed::parse(&frame).unwrap();
        let (ingress_ifindex, now_ns) = (INGRESS, self.now_ns);
        let around = Surroundings { ingress_ifindex, now_ns, ..Surroundings::default() };
        let decision = self.twin.observe(&parsed, &around);
        assert_ne!(decision.verdict, Verdict::Pass, "{decision:?}");
        self.twin.source_of(&parsed, &decision).unwrap().ip()
    }

    /// Opens flows until this many have the address; returns the ports of their clients.
    fn open_at(&mut self, address: [u8; 4], count: usize) -> Vec<u16> {
        let address = IpAddr::from(address);
        (1000..2000).filter(|port| self.open(*port) == address).take(count).collect()
    }

    /// Seconds since the last count of ports.
    fn count_age(&self) -> Option<u64> {
        let counted = self.control.ports_counted.as_ref()?;
        Some((self.now_ns - counted.at_ns) / SECOND)
    }
}

#[test]
fn ports_are_not_counted_while_a_flow_of_an_address_that_leaves_lasts() {
    let mut world = World::new(&[STAYS, LEAVES]);
    let ports = world.open_at(LEAVES, 3);
    let [first, last] = [ports[0], ports[2]];
    world.apply(&[STAYS]);
    assert_eq!(world.count_age(), None, "a count would be too early");
    // New connections of the same client keep their flows, and all but the last one end.
    for round in 0..40 {
        world.open(last);
        if round < 2 {
            world.open(first);
        }
        assert_eq!(world.run(3), [] as [IpAddr; 0], "{round}");
    }
    let age = world.count_age().unwrap();
    assert!(age >= 60, "counted {age} s ago");
    assert_eq!(world.open(last), IpAddr::from(LEAVES), "it is known");
    // An unanswered flow lasts for 10 s.
    let before = world.run(9);
    assert_eq!((before, world.run(20)), (Vec::new(), vec![LEAVES.into()]));
    assert_eq!(world.run(60), [] as [IpAddr; 0]);
    assert_eq!(world.open(2500), IpAddr::from(STAYS));
}

#[test]
fn an_address_without_flows_is_free_after_one_count() {
    let mut world = World::new(&[STAYS, LEAVES]);
    world.apply(&[STAYS]);
    assert_eq!(world.run(12), [IpAddr::from(LEAVES)]);
    // It comes back, and leaves again with a flow.
    world.apply(&[STAYS, LEAVES]);
    let flows = world.open_at(LEAVES, 1);
    world.apply(&[STAYS]);
    world.open(flows[0]);
    assert_eq!(world.run(8), [] as [IpAddr; 0]);
    assert_eq!(world.run(30), [IpAddr::from(LEAVES)]);
}

#[test]
fn a_flow_that_returns_after_its_address_is_free_gets_another() {
    let mut world = World::new(&[STAYS, LEAVES]);
    let flows = world.open_at(LEAVES, 1);
    world.apply(&[STAYS]);
    assert_eq!(world.open(flows[0]), IpAddr::from(LEAVES), "it is known");
    assert_eq!(world.run(40), [IpAddr::from(LEAVES)]);
    assert_eq!(world.open(flows[0]), IpAddr::from(STAYS));
}
