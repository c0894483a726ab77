//! The tables of our program, written by hand: VIPs in front of one pool, without the control side,
//! so that a scenario is exactly what it says.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use equipoise_packet::abi::{
    BACKEND_ELIGIBLE, BACKEND_LIVE, BACKEND_REACHABLE, Backend, DIRECTORY_REVERSE, Directory,
    FlowKey, Forward, MACS, Mac, NO_SLOT, Pick, Plain, SERVICE_SECOND_CHANCE, Service, Source,
    SourceSet, Vip, vip_kind,
};
use equipoise_packet::{
    Capacity, Digest, DigestHash, Limits, Memory, PinController, PogCell, TablesPublisher,
    address_hash, pin_form, station_hash,
};
use equipoise_pog::{PogBuilder, Seed};

use crate::katran_style::mac;
use crate::ring::ring;
use crate::traffic::{BALANCER_MAC, PORT, PROTOCOL, Traffic};

/// The secret of flow digests.
const SEED: Seed = Seed { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };
const VIP_SEED: u32 = 0x7f4a_7c15;
/// Of the outer path: larger than any frame here.
const MTU: u16 = 1500;
const LOOPBACK: u32 = 1;
const GRACE: Duration = Duration::from_millis(10);
/// Nothing is recorded in pending here.
const PENDING_MARK: u32 = 1 << 14;

/// The content of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) forward: Forward,
    pub(crate) backends: u16,
    /// Every flow is in the POG, on another backend than the ring's answer would be.
    pub(crate) pinned: bool,
    /// Interface that packets to backends leave by.
    pub(crate) ifindex: u32,
    /// Packets for each sample of flows' bytes; 0: none.
    pub(crate) sample_every: u32,
    /// Each VIP has a ring of its own, as with pools that differ. Otherwise all share one, as the
    /// control side writes it for equal pools.
    pub(crate) own_rings: bool,
    /// With a second chance: one entry of the ring in so many has another backend than before.
    pub(crate) replaced: Option<usize>,
}

/// Sets `memory` up and publishes the tables.
pub(crate) fn publish(
    memory: &Memory,
    limits: &Limits,
    capacity: &Capacity,
    traffic: &Traffic,
    plan: &Plan,
) -> Result<TablesPublisher> {
    let mut words = Words { words: vec![0; limits.directory_bytes() / 8], limits };
    words.write(traffic, plan);
    let pins = pins(traffic, plan)?;
    let sizes = limits.shared_sizes(capacity);
    memory.state.interval().store(0x9e37_79b9_7f4a_7c15, std::sync::atomic::Ordering::Relaxed);
    memory.state.pending_mark().store(PENDING_MARK, std::sync::atomic::Ordering::Relaxed);
    let region = memory.tables.clone();
    let mut publisher = TablesPublisher::create(region, sizes, GRACE, pins.pog(), None)?;
    publisher.publish_with(pins.pog(), None, &words.words)?;
    Ok(publisher)
}

/// The digest of a flow, by its VIP's service.
fn digest(traffic: &Traffic, flow: u32) -> Digest {
    let (.., vip) = traffic.flow(flow);
    traffic.key(flow).digest(SEED, salt(vip))
}

fn salt(vip: u32) -> u64 {
    u64::from(vip).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn pins(traffic: &Traffic, plan: &Plan) -> Result<PinController> {
    let flows = if plan.pinned { traffic.flows } else { 0 };
    let slot = |flow: u32| (flow % u32::from(plan.backends)) as PogCell;
    let entries = (0..flows).map(|flow| (digest(traffic, flow), slot(flow)));
    let builder = PogBuilder::<PogCell>::new()
        .fingerprint(pin_form())
        .hash::<DigestHash>()
        .keys_max(flows as usize)
        .random_seed(SEED.k0);
    builder.build(entries).context("building the pins")
}

/// The directory, as words.
struct Words<'a> {
    words: Vec<u64>,
    limits: &'a Limits,
}

impl Words<'_> {
    fn write(&mut self, traffic: &Traffic, plan: &Plan) {
        let limits = *self.limits;
        self.put(limits.directory_offset, 0, directory(&limits, plan));
        // A run in the kernel without an interface comes by loopback.
        for ifindex in BTreeSet::from([LOOPBACK, plan.ifindex]) {
            self.put_mac(ifindex);
        }
        let ring = ring(plan.backends, limits.ring_entries as usize);
        for vip in 0..traffic.vips {
            self.put_vip(traffic, vip);
            let service = service(traffic, vip, ring.len(), plan);
            self.put(limits.services_offset, vip as usize, service);
            if plan.forward == Forward::FullNat {
                let set = source_set(traffic, vip);
                self.put(limits.source_sets_offset, vip as usize, set);
            }
            for number in 0..plan.backends {
                let index = first_backend(vip, plan) + usize::from(number);
                self.put(limits.backends_offset, index, backend(traffic, (index, number), plan));
            }
        }
        let rings = if plan.own_rings { traffic.vips as usize } else { 1 };
        for index in 0..rings {
            let start = self.index(limits.rings_offset) * 8 + index * ring.len() * 2;
            self.put_ring(start, ring.iter().copied());
            if let Some(each) = plan.replaced {
                let replaced = |(position, slot): (usize, &u16)| match position % each {
                    0 => (slot + 1) % plan.backends,
                    _ => NO_SLOT,
                };
                let after = start + traffic.vips as usize * ring.len() * 2;
                self.put_ring(after, ring.iter().enumerate().map(replaced));
            }
        }
        let (address, _) = octets(traffic.family.backend(usize::from(SOURCE)));
        self.put(limits.sources_offset, 0, Source { address });
    }

    /// Writes the slots of a ring at an offset in bytes.
    fn put_ring(&mut self, start: usize, slots: impl Iterator<Item = u16>) {
        for (position, slot) in slots.enumerate() {
            let at = start + position * 2;
            self.words[at / 8] |= u64::from(slot) << (at % 8 * 8);
        }
    }

    fn put_mac(&mut self, ifindex: u32) {
        let offset = self.limits.macs_offset;
        let mut index = station_hash(VIP_SEED, ifindex, BALANCER_MAC) as usize % MACS;
        while self.words[self.index(offset) + index * 2 + 1] != 0 {
            index = (index + 1) % MACS;
        }
        self.put(offset, index, Mac { address: BALANCER_MAC, ifindex, ..Mac::default() });
    }

    fn put_vip(&mut self, traffic: &Traffic, number: u32) {
        let (address, family) = octets(traffic.family.vip(number));
        let port = PORT.to_be_bytes();
        let exact = vip_kind::EXACT;
        let whole = [([0; 2], 0, vip_kind::ADDRESS), (port, PROTOCOL, exact)];
        for (port, protocol, kind) in whole {
            let vip = Vip { address, port, protocol, family, kind, ..Vip::default() };
            let vip = Vip { service: number as u16, ..vip };
            let mask = self.limits.vips_max - 1;
            let offset = self.limits.vips_offset;
            let mut index = address_hash(VIP_SEED, &address, port, protocol) & mask;
            while self.words[self.index(offset) + index as usize * 4..][..4] != [0; 4] {
                index = (index + 1) & mask;
            }
            self.put(offset, index as usize, vip);
        }
    }

    /// Index of the first word of a table, by its offset in a copy.
    fn index(&self, offset: u32) -> usize {
        (offset - self.limits.directory_offset) as usize / 8
    }

    /// Entry `position` of the table at `offset`.
    fn put<T: Plain>(&mut self, offset: u32, position: usize, entry: T) {
        let words = size_of::<T>() / 8;
        let start = self.index(offset) + position * words;
        let place = &mut self.words[start..start + words];
        // SAFETY: the slice has the size of T, which is nothing but its bytes; alignment is not
        // asked for.
        unsafe { place.as_mut_ptr().cast::<T>().write_unaligned(entry) };
    }
}

fn octets(address: IpAddr) -> ([u8; 16], u8) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => {
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 4)
        }
        IpAddr::V6(address) => (address.octets(), 6),
    }
}

fn directory(limits: &Limits, plan: &Plan) -> Directory {
    let reverse = if plan.forward == Forward::Nat { DIRECTORY_REVERSE } else { 0 };
    let mut tunnel_source6 = [0; 16];
    tunnel_source6[0] = 1;
    Directory {
        digest_k0: SEED.k0,
        digest_k1: SEED.k1,
        vip_seed: VIP_SEED,
        vip_mask: limits.vips_max - 1,
        reverse_mask: limits.reverse_max - 1,
        flags: reverse,
        tunnel_source4: [172, 16, 0, 0],
        tunnel_source4_mask: [0, 0, 255, 255],
        tunnel_source6,
        gue_port: 6080u16.to_be_bytes(),
        echo_per_second: 100,
        too_big_per_second: 100,
        services: limits.services_max,
        ..Directory::default()
    }
}

fn service(traffic: &Traffic, vip: u32, ring_len: usize, plan: &Plan) -> Service {
    let ring = if plan.own_rings { vip } else { 0 };
    let second_chance = Service {
        sequence: traffic.vips + ring,
        sequence_len: ring_len as u32,
        flags: SERVICE_SECOND_CHANCE,
        ..Service::default()
    };
    Service {
        salt: salt(vip),
        backends_first: first_backend(vip, plan) as u32,
        slots: u32::from(plan.backends),
        ring,
        ring_len: ring_len as u32,
        ring_next: ring,
        ring_next_len: ring_len as u32,
        number: vip as u16,
        forward: plan.forward as u8,
        key: FlowKey::FiveTuple.number(),
        pick: Pick::Ring as u8,
        ..if plan.replaced.is_some() { second_chance } else { Service::default() }
    }
}

/// The only source address: a backend's that does not exist.
const SOURCE: u16 = 200;
/// Lives of flows, in ticks: longer than the experiment.
const TICKS: u16 = 10_000;

fn source_set(traffic: &Traffic, vip: u32) -> SourceSet {
    let (address, _) = octets(traffic.family.vip(vip));
    let (port_first, ports) = (1024, 64_512);
    let (tcp, closing, udp) = (TICKS, TICKS, TICKS);
    let service = vip as u16;
    SourceSet { vip: address, first: 0, sources: 1, port_first, ports, tcp, closing, udp, service }
}

/// Returns the index of a VIP's first backend: each VIP has entries and counters of its own.
pub(crate) fn first_backend(vip: u32, plan: &Plan) -> usize {
    vip as usize * usize::from(plan.backends)
}

fn backend(traffic: &Traffic, (index, number): (usize, u16), plan: &Plan) -> Backend {
    let (address, family) = octets(traffic.family.backend(usize::from(number)));
    Backend {
        address,
        port: 8443u16.to_be_bytes(),
        family,
        flags: BACKEND_LIVE | BACKEND_REACHABLE | BACKEND_ELIGIBLE,
        ifindex: plan.ifindex,
        destination_mac: mac(number),
        source_mac: BALANCER_MAC,
        mtu: MTU,
        number: index as u16,
        weight: 100,
        ..Backend::default()
    }
}
