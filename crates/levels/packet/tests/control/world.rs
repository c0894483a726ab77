//! A control side over memories on which the program runs, compiled for the host; with a clock of
//! its own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use equipoise_core::{AdminState, Generation, Health, Weight};
use equipoise_packet::abi::{FlowKey, Forward, How};
use equipoise_packet::control::{Status, Tick, VipStatus};
use equipoise_packet::packet::Parsed;
use equipoise_packet::twin::{Surroundings, Twin};
use equipoise_packet::{
    Access, BackendSpec, Capacity, Control, FlowScheduler, FlowTags, Ledger, Limits, Memory,
    NextHop, OnDown, OwnTimeouts, Ports, Protocol, Registry, Settings, Snapshot, Station, VipSpec,
};
use equipoise_packet_host::HostProgram;
use equipoise_pog::Seed;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const FIN: u8 = 0x11;
pub(crate) const RST: u8 = 0x04;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const INGRESS: u32 = 1;
const BALANCER_MAC: [u8; 6] = [2, 0, 0, 0, 255, 1];
pub(crate) const PORT: u16 = 443;

/// The number of a backend.
pub(crate) type Backend = u16;

pub(crate) struct World {
    pub(crate) control: Option<Control>,
    pub(crate) memories: Vec<Memory>,
    programs: Vec<HostProgram>,
    pub(crate) capacity: Capacity,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    pub(crate) now: Instant,
    pub(crate) snapshot: Snapshot,
    /// The ledger that the control side noted for its successor.
    pub(crate) ledger: Option<Ledger>,
    /// The last frame to a backend.
    pub(crate) sent: Vec<u8>,
    /// Sums of all ticks.
    pub(crate) done: Tick,
}

/// Small, so that limits are met.
pub(crate) fn capacity() -> Capacity {
    Capacity {
        flows: 20_000,
        pins: 10_000,
        pending: 32_768,
        services: 8,
        backends: 64,
        prefixes: 1024,
        full_nat_flows: 0,
        rings: 24,
        ring_entries: 4093,
        cpus: 2,
        log_events: 1 << 15,
        sample_every: 0,
        tags: FlowTags::Long,
    }
}

pub(crate) fn settings() -> Settings {
    let fleet_seed = Seed { k0: 0x1234, k1: 0x9876 };
    Settings { fleet_seed, random_seed: Some(7), ..Settings::default() }
}

pub(crate) fn backend(number: Backend) -> BackendSpec {
    BackendSpec {
        address: address_of(number),
        port: None,
        weight: Weight::DEFAULT,
        admin: AdminState::Up,
        health: Health::Healthy,
        on_down: OnDown::Move,
        backup: false,
    }
}

pub(crate) fn address_of(number: Backend) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::from([10, 200, high, low])
}

/// The VIP of index `vip`, with these backends.
pub(crate) fn vip(vip: u8, scheduler: FlowScheduler, backends: &[Backend]) -> VipSpec {
    VipSpec {
        address: vip_address(vip),
        ports: Ports::One(PORT),
        protocol: Protocol::Tcp,
        forward: Forward::DirectRouting,
        key: FlowKey::FiveTuple,
        scheduler,
        access: Access::default(),
        sources: Default::default(),
        timeouts: OwnTimeouts::default(),
        quic: None,
        second_chance: false,
        backends: backends.iter().map(|&number| backend(number)).collect(),
    }
}

fn vip_address(vip: u8) -> IpAddr {
    IpAddr::from([198, 51, 100, vip])
}

/// A packet to a VIP's port: client number `client`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) vip: u8,
    pub(crate) client: u32,
    pub(crate) protocol: Protocol,
    /// TCP's.
    pub(crate) flags: u8,
}

pub(crate) fn tcp(vip: u8, client: u32, flags: u8) -> Packet {
    Packet { vip, client, protocol: Protocol::Tcp, flags }
}

pub(crate) fn udp(vip: u8, client: u32) -> Packet {
    Packet { vip, client, protocol: Protocol::Udp, flags: 0 }
}

/// Returns the address and port of a client; 64 flows share an address.
pub(crate) fn client_of(client: u32) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from(0x0b00_0000 + client / 64), 1024 + (client % 64) as u16)
}

impl Packet {
    /// Without checksums, at which the program does not look.
    fn frame(&self) -> [u8; 60] {
        let mut frame = [0; 60];
        let (source, port) = client_of(self.client);
        frame[..6].copy_from_slice(&BALANCER_MAC);
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, 255, 2, 8, 0]);
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
    pub(crate) fn new(balancers: usize, capacity: Capacity, settings: Settings) -> World {
        let registry = Registry::anonymous(capacity.flows).unwrap();
        World::with_registry(balancers, capacity, settings, registry)
    }

    pub(crate) fn with_registry(
        balancers: usize,
        capacity: Capacity,
        settings: Settings,
        registry: Registry,
    ) -> World {
        World::with_ledger(balancers, capacity, settings, registry, None)
    }

    /// With new memories, and what the control side of others noted.
    pub(crate) fn with_ledger(
        balancers: usize,
        capacity: Capacity,
        settings: Settings,
        registry: Registry,
        ledger: Option<Ledger>,
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
            ledger,
            sent: Vec::new(),
            done: Tick::default(),
        };
        world.start(registry);
        world
    }

    /// Starts the control side, as a new process would.
    pub(crate) fn start(&mut self, registry: Registry) {
        let (memories, settings) = (self.memories.clone(), self.settings.clone());
        let (capacity, known) = (self.capacity, self.ledger.as_ref());
        let control = Control::resume(memories, capacity, registry, known, settings, self.now);
        let mut control = control.unwrap();
        let hop = |number: u16| {
            let [high, low] = number.to_be_bytes();
            let destination_mac = Some([2, 0, 0, 0, high, low]);
            let source_mac = BALANCER_MAC;
            (
                address_of(number),
                NextHop { ifindex: INGRESS, destination_mac, source_mac, mtu: 1500 },
            )
        };
        control.next_hops(&(0..200).map(hop).collect::<HashMap<_, _>>());
        control.take_frames(&[Station { ifindex: INGRESS, mac: BALANCER_MAC }].into());
        self.control = Some(control);
    }

    pub(crate) fn control(&mut self) -> &mut Control {
        self.control.as_mut().unwrap()
    }

    /// A VIP of a scheduler, settled.
    pub(crate) fn one_vip(scheduler: FlowScheduler, backends: &[Backend]) -> World {
        let mut world = World::new(1, capacity(), settings());
        world.apply(vec![vip(1, scheduler, backends)]);
        world.settle();
        world
    }

    /// Wants these VIPs. Nothing happens before time goes on.
    pub(crate) fn apply(&mut self, vips: Vec<VipSpec>) {
        let generation = Generation(self.snapshot.generation.0 + 1);
        self.snapshot = Snapshot { generation, vips };
        let (snapshot, now) = (self.snapshot.clone(), self.now);
        self.control().apply(&snapshot, now).unwrap();
    }

    /// Changes the backends of the VIP of an index.
    pub(crate) fn change(&mut self, vip: u8, change: impl FnOnce(&mut Vec<BackendSpec>)) {
        let mut vips = self.snapshot.vips.clone();
        let spec = vips.iter_mut().find(|spec| spec.address == vip_address(vip)).unwrap();
        change(&mut spec.backends);
        self.apply(vips);
    }

    /// One packet at one balancer: the backend that gets it.
    pub(crate) fn send_to(&mut self, balancer: usize, packet: Packet) -> Option<Backend> {
        let frame = self.run_frame(balancer, packet, &packet.frame())?;
        Some(u16::from_be_bytes([frame[4], frame[5]]))
    }

    #[allow(dead_code, reason = "of the tests of the control side alone")]
    /// The same with a datagram of other data.
    pub(crate) fn send_data(&mut self, packet: Packet, data: &[u8]) -> Option<Backend> {
        let mut frame = [&packet.frame()[..42], data].concat();
        frame[17] = 28 + data.len() as u8;
        frame[39] = 8 + data.len() as u8;
        let frame = self.run_frame(0, packet, &frame)?;
        Some(u16::from_be_bytes([frame[4], frame[5]]))
    }

    /// One packet at one balancer: the frame that leaves it.
    pub(crate) fn frame(&mut self, balancer: usize, packet: Packet) -> Option<Vec<u8>> {
        self.run_frame(balancer, packet, &packet.frame())
    }

    fn run_frame(&mut self, balancer: usize, packet: Packet, frame: &[u8]) -> Option<Vec<u8>> {
        let cpu = packet.client % self.limits.cpus_max;
        let (verdict, frame) = self.programs[balancer].run(cpu, INGRESS, frame);
        match verdict {
            XDP_DROP => None,
            XDP_PASS => panic!("{packet:?} is not for a VIP"),
            _ => {
                self.sent.clone_from(&frame);
                Some(frame)
            }
        }
    }

    #[allow(dead_code, reason = "of the tests of a second chance alone")]
    /// The same with GUE: the backend, and the second one if the packet has it.
    pub(crate) fn gue(
        &mut self,
        balancer: usize,
        packet: Packet,
    ) -> Option<(Backend, Option<Backend>)> {
        const GUE: usize = 14 + 20 + 8;
        let frame = self.frame(balancer, packet)?;
        let number = |at: usize| u16::from_be_bytes([frame[at + 2], frame[at + 3]]);
        let is_variant_0 = frame[GUE] >> 6 == 0;
        Some((number(30), is_variant_0.then(|| number(GUE + 8))))
    }

    pub(crate) fn send(&mut self, packet: Packet) -> Option<Backend> {
        self.send_to(0, packet)
    }

    #[allow(dead_code, reason = "of the test of the invariant alone")]
    /// How a balancer would choose the backend of a packet now. Nothing is sent or recorded.
    pub(crate) fn how(&self, balancer: usize, packet: Packet) -> Option<How> {
        let twin = Twin::new(self.memories[balancer].clone(), self.limits);
        let around = Surroundings { ingress_ifindex: INGRESS, ..Surroundings::default() };
        twin.decide(&Parsed::parse(&packet.frame())?, &around).how
    }

    /// A SYN and the packet that completes the handshake.
    pub(crate) fn open(&mut self, vip: u8, client: u32) -> Option<Backend> {
        let backend = self.send(tcp(vip, client, SYN));
        assert_eq!(self.send(tcp(vip, client, ACK)), backend, "client {client}: handshake");
        backend
    }

    /// Opens flows of these clients.
    pub(crate) fn open_all(&mut self, vip: u8, clients: std::ops::Range<u32>) -> Vec<Backend> {
        clients.map(|client| self.open(vip, client).unwrap()).collect()
    }

    /// Sends a packet of each flow, and insists that it goes where the flow is.
    pub(crate) fn assert_at(&mut self, vip: u8, first: u32, homes: &[Backend]) {
        for (client, home) in (first..).zip(homes) {
            assert_eq!(self.send(tcp(vip, client, ACK)), Some(*home), "client {client}");
        }
    }

    /// Lets time go on, with ticks when they are due.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.control().next_tick() <= end {
            self.now = self.now.max(self.control().next_tick());
            self.tick();
        }
        self.now = end;
    }

    pub(crate) fn tick(&mut self) -> Tick {
        let now = self.now;
        let noted = &mut self.ledger;
        let control = self.control.as_mut().unwrap();
        let tick = control.tick_noting(now, |ledger| {
            *noted = Some(ledger.clone());
            true
        });
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
    pub(crate) fn settle(&mut self) {
        self.run(2 * self.settings.transition + Duration::from_secs(1));
    }

    pub(crate) fn status(&mut self) -> Status {
        self.control().status()
    }

    pub(crate) fn vip_status(&mut self, vip: u8) -> VipStatus {
        let status = self.status();
        status.vips.into_iter().find(|it| it.vip.address == vip_address(vip)).unwrap()
    }

    /// Flows in the registry.
    pub(crate) fn flows(&mut self) -> usize {
        self.status().flows
    }
}
