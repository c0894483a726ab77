//! A control side over memories on which the program runs, compiled for the host; with a clock of its own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use equipoise_core::{AdminState, Generation, Health, SchedulerKind, Weight};
use equipoise_packet::abi::{FlowKey, Forward};
use equipoise_packet::control::{Status, Tick, VipStatus};
use equipoise_packet::{
    BackendSpec, Capacity, Control, Limits, Memory, NextHop, OnDown, Ports, Protocol, Registry,
    Settings, Snapshot, VipSpec,
};
use equipoise_packet_host::HostProgram;
use equipoise_pog::Seed;

pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;
pub const FIN: u8 = 0x11;
pub const RST: u8 = 0x04;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const INGRESS: u32 = 1;
const PORT: u16 = 443;

/// The number of a backend.
pub type Backend = u16;

pub struct World {
    pub control: Option<Control>,
    pub memories: Vec<Memory>,
    programs: Vec<HostProgram>,
    pub capacity: Capacity,
    pub limits: Limits,
    pub settings: Settings,
    pub now: Instant,
    pub snapshot: Snapshot,
    /// Sums of all ticks.
    pub done: Tick,
}

/// Small, so that limits are met.
pub fn capacity() -> Capacity {
    Capacity {
        flows: 20_000,
        pins: 10_000,
        pending: 32_768,
        services: 8,
        backends: 64,
        rings: 24,
        ring_entries: 4093,
        cpus: 2,
        log_events: 1 << 15,
    }
}

pub fn settings() -> Settings {
    let fleet_seed = Seed { k0: 0x1234, k1: 0x9876 };
    Settings { fleet_seed, random_seed: Some(7), ..Settings::default() }
}

pub fn backend(number: Backend) -> BackendSpec {
    BackendSpec {
        address: address_of(number),
        port: None,
        weight: Weight::DEFAULT,
        admin: AdminState::Up,
        health: Health::Healthy,
        on_down: OnDown::Move,
    }
}

pub fn address_of(number: Backend) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::from([10, 200, high, low])
}

/// The VIP of index `vip`, with these backends.
pub fn vip(vip: u8, scheduler: SchedulerKind, backends: &[Backend]) -> VipSpec {
    VipSpec {
        address: vip_address(vip),
        ports: Ports::One(PORT),
        protocol: Protocol::Tcp,
        forward: Forward::DirectRouting,
        key: FlowKey::FiveTuple,
        scheduler,
        backends: backends.iter().map(|&number| backend(number)).collect(),
    }
}

fn vip_address(vip: u8) -> IpAddr {
    IpAddr::from([198, 51, 100, vip])
}

/// A packet to a VIP's port: client number `client`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub vip: u8,
    pub client: u32,
    pub protocol: Protocol,
    /// TCP's.
    pub flags: u8,
}

pub fn tcp(vip: u8, client: u32, flags: u8) -> Packet {
    Packet { vip, client, protocol: Protocol::Tcp, flags }
}

pub fn udp(vip: u8, client: u32) -> Packet {
    Packet { vip, client, protocol: Protocol::Udp, flags: 0 }
}

/// The address of a client, 64 of whose flows have it; and the port.
pub fn client_of(client: u32) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from(0x0b00_0000 + client / 64), 1024 + (client % 64) as u16)
}

impl Packet {
    /// Without checksums, at which the program does not look.
    fn frame(&self) -> [u8; 60] {
        let mut frame = [0; 60];
        let (source, port) = client_of(self.client);
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 255, 1, 2, 0, 0, 0, 255, 2, 8, 0]);
        frame[14] = 0x45;
        frame[17] = 46;
        frame[22] = 64;
        frame[23] = self.protocol.number();
        frame[26..30].copy_from_slice(&source.octets());
        frame[30..34].copy_from_slice(&[198, 51, 100, self.vip]);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[36..38].copy_from_slice(&PORT.to_be_bytes());
        match self.protocol {
            Protocol::Tcp => (frame[46], frame[47]) = (0x50, self.flags),
            Protocol::Udp => frame[39] = 26,
        }
        frame
    }
}

impl World {
    /// With `balancers` that share one control side.
    pub fn new(balancers: usize, capacity: Capacity, settings: Settings) -> World {
        let registry = Registry::anonymous(capacity.flows).unwrap();
        World::with_registry(balancers, capacity, settings, registry)
    }

    pub fn with_registry(
        balancers: usize,
        capacity: Capacity,
        settings: Settings,
        registry: Registry,
    ) -> World {
        let limits = Limits::new(&capacity);
        let memories: Vec<_> =
            (0..balancers).map(|_| Memory::anonymous(&limits).unwrap()).collect();
        let programs = memories.iter().map(|memory| HostProgram::new(memory, &limits)).collect();
        let mut world = World {
            control: None,
            memories,
            programs,
            capacity,
            limits,
            settings,
            now: Instant::now(),
            snapshot: Snapshot::default(),
            done: Tick::default(),
        };
        world.start(registry);
        world
    }

    /// Starts the control side, as a new process would.
    pub fn start(&mut self, registry: Registry) {
        let (memories, settings) = (self.memories.clone(), self.settings.clone());
        let control = Control::new(memories, self.capacity, registry, settings, self.now);
        let mut control = control.unwrap();
        let hop = |number: u16| {
            let [high, low] = number.to_be_bytes();
            let destination_mac = Some([2, 0, 0, 0, high, low]);
            let source_mac = [2, 0, 0, 0, 255, 1];
            (address_of(number), NextHop { ifindex: INGRESS, destination_mac, source_mac, mtu: 1500 })
        };
        control.next_hops(&(0..200).map(hop).collect::<HashMap<_, _>>());
        self.control = Some(control);
    }

    pub fn control(&mut self) -> &mut Control {
        self.control.as_mut().unwrap()
    }

    /// A VIP of a scheduler, settled.
    pub fn one_vip(scheduler: SchedulerKind, backends: &[Backend]) -> World {
        let mut world = World::new(1, capacity(), settings());
        world.apply(vec![vip(1, scheduler, backends)]);
        world.settle();
        world
    }

    /// Wants these VIPs. Nothing happens before time goes on.
    pub fn apply(&mut self, vips: Vec<VipSpec>) {
        let generation = Generation(self.snapshot.generation.0 + 1);
        self.snapshot = Snapshot { generation, vips };
        let (snapshot, now) = (self.snapshot.clone(), self.now);
        self.control().apply(&snapshot, now).unwrap();
    }

    /// Changes the backends of the VIP of an index.
    pub fn change(&mut self, vip: u8, change: impl FnOnce(&mut Vec<BackendSpec>)) {
        let mut vips = self.snapshot.vips.clone();
        let spec = vips.iter_mut().find(|spec| spec.address == vip_address(vip)).unwrap();
        change(&mut spec.backends);
        self.apply(vips);
    }

    /// One packet at one balancer: the backend that gets it.
    pub fn send_to(&mut self, balancer: usize, packet: Packet) -> Option<Backend> {
        let cpu = packet.client % self.limits.cpus_max;
        let (verdict, frame) = self.programs[balancer].run(cpu, INGRESS, &packet.frame());
        match verdict {
            XDP_DROP => None,
            XDP_PASS => panic!("{packet:?} is not for a VIP"),
            _ => Some(u16::from_be_bytes([frame[4], frame[5]])),
        }
    }

    pub fn send(&mut self, packet: Packet) -> Option<Backend> {
        self.send_to(0, packet)
    }

    /// A SYN and the packet that completes the handshake.
    pub fn open(&mut self, vip: u8, client: u32) -> Option<Backend> {
        let backend = self.send(tcp(vip, client, SYN));
        assert_eq!(self.send(tcp(vip, client, ACK)), backend, "client {client}: handshake");
        backend
    }

    /// Opens flows of these clients.
    pub fn open_all(&mut self, vip: u8, clients: std::ops::Range<u32>) -> Vec<Backend> {
        clients.map(|client| self.open(vip, client).unwrap()).collect()
    }

    /// Sends a packet of each flow, and insists that it goes where the flow is.
    pub fn assert_at(&mut self, vip: u8, first: u32, homes: &[Backend]) {
        for (client, home) in (first..).zip(homes) {
            assert_eq!(self.send(tcp(vip, client, ACK)), Some(*home), "client {client}");
        }
    }

    /// Lets time go on, with ticks when they are due.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.control().next_tick() <= end {
            self.now = self.now.max(self.control().next_tick());
            self.tick();
        }
        self.now = end;
    }

    pub fn tick(&mut self) -> Tick {
        let now = self.now;
        let tick = self.control().tick(now);
        let done = &mut self.done;
        done.events += tick.events;
        done.learnt += tick.learnt;
        done.expired += tick.expired;
        done.registry_full += tick.registry_full;
        done.moved += tick.moved;
        done.pins_full += tick.pins_full;
        done.published = tick.published.or(done.published);
        done.began.extend(&tick.began);
        done.settled.extend(&tick.settled);
        done.drained.extend(&tick.drained);
        tick
    }

    /// Until changes of pools are over and flows are where they are to be.
    pub fn settle(&mut self) {
        self.run(2 * self.settings.transition + Duration::from_secs(1));
    }

    pub fn status(&mut self) -> Status {
        self.control().status()
    }

    pub fn vip_status(&mut self, vip: u8) -> VipStatus {
        let status = self.status();
        status.vips.into_iter().find(|it| it.vip.address == vip_address(vip)).unwrap()
    }

    /// Flows in the registry.
    pub fn flows(&mut self) -> usize {
        self.status().flows
    }
}
