//! Tables written by hand, so that tests of the program depend on nothing else that writes them.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::IpAddr;
use std::time::Duration;

use equipoise_packet::abi::{
    Backend, Directory, MACS, Mac, Plain, Range, Reverse, Service, Vip, vip_kind,
};
use equipoise_packet::{
    Capacity, Digest, DigestHash, FlowTags, Limits, LoadError, Memory, Program, TablesPublisher,
    pin_form, station_hash,
};
use equipoise_pog::PogBuilder;

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_TX: u32 = 3;
pub const XDP_REDIRECT: u32 = 4;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

pub const CAPACITY: Capacity = Capacity {
    flows: 1 << 12,
    tags: FlowTags::Long,
    pins: 1 << 10,
    pending: 1 << 15,
    services: 16,
    backends: 64,
    prefixes: 16,
    full_nat_flows: 0,
    rings: 8,
    ring_entries: 251,
    cpus: 64,
    log_events: 1 << 10,
    sample_every: 0,
};

/// Returns `None`, with a message, if this process may not load programs.
pub fn loaded(limits: &Limits) -> Option<Program> {
    match Program::load(limits) {
        Ok(program) => Some(program),
        Err(LoadError::Privilege(_)) => {
            eprintln!("skipped: loading BPF programs is not permitted");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The 16 bytes of an address in the tables, and its family.
pub fn address(text: &str) -> ([u8; 16], u8) {
    match text.parse().unwrap() {
        IpAddr::V6(address) => (address.octets(), 6),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 4)
        }
    }
}

/// A copy's directory, and the pins.
#[derive(Clone)]
pub struct Tables {
    limits: Limits,
    bytes: Vec<u8>,
    pub directory: Directory,
    pub pins: Vec<(Digest, u16)>,
}

impl Tables {
    pub fn new(limits: &Limits) -> Tables {
        let directory = Directory {
            digest_k0: 0x0123_4567_89ab_cdef,
            digest_k1: 0xfedc_ba98_7654_3210,
            vip_seed: 0x5eed_5eed,
            vip_mask: limits.vips_max - 1,
            reverse_mask: limits.reverse_max - 1,
            ..Directory::default()
        };
        let bytes = vec![0; limits.directory_bytes()];
        Tables { limits: *limits, bytes, directory, pins: Vec::new() }
    }

    fn put<T: Plain>(&mut self, offset: u32, index: usize, value: &T) {
        let at = (offset - self.limits.directory_offset) as usize + index * size_of::<T>();
        // SAFETY: `Plain` structs are nothing but their bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
        };
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn hash(&self, address: &[u8; 16], port: [u8; 2], protocol: u8) -> u32 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = u64::from(self.directory.vip_seed);
        for word in address.chunks_exact(8) {
            hash = (hash ^ u64::from_ne_bytes(word.try_into().unwrap())).wrapping_mul(FACTOR);
            hash ^= hash >> 32;
        }
        let rest = u64::from(u16::from_ne_bytes(port)) << 16 | u64::from(protocol);
        ((hash ^ rest).wrapping_mul(FACTOR) >> 32) as u32
    }

    fn free(&self, offset: u32, entry: usize, mark: usize, hash: u32, mask: u32) -> usize {
        let start = (offset - self.limits.directory_offset) as usize;
        (0..8)
            .map(|probe| (hash.wrapping_add(probe) & mask) as usize)
            .find(|index| self.bytes[start + index * entry + mark] == 0)
            .expect("a free entry within the probes")
    }

    pub fn vip(&mut self, vip: Vip) {
        let hash = self.hash(&vip.address, vip.port, vip.protocol);
        let index = self.free(self.limits.vips_offset, 32, 20, hash, self.directory.vip_mask);
        self.put(self.limits.vips_offset, index, &vip);
    }

    /// Its address's entry and that of one port.
    pub fn exact(&mut self, text: &str, port: u16, protocol: u8, service: u16) {
        let (address, family) = address(text);
        self.address(text, service);
        let port = port.to_be_bytes();
        let kind = vip_kind::EXACT;
        self.vip(Vip { address, port, protocol, family, kind, service, ..Vip::default() });
    }

    pub fn address(&mut self, text: &str, service: u16) {
        let (address, family) = address(text);
        let hash = self.hash(&address, [0; 2], 0);
        let start = (self.limits.vips_offset - self.limits.directory_offset) as usize;
        let known = (0..8u32).any(|probe| {
            let at = start + (hash.wrapping_add(probe) & self.directory.vip_mask) as usize * 32;
            self.bytes[at..at + 16] == address && self.bytes[at + 20] == vip_kind::ADDRESS
        });
        if !known {
            let (kind, udp_service) = (vip_kind::ADDRESS, service);
            self.vip(Vip { address, family, kind, service, udp_service, ..Vip::default() });
        }
    }

    pub fn range(&mut self, index: usize, first: u16, last: u16, service: u16) {
        self.put(self.limits.ranges_offset, index, &Range { first, last, service, padding: 0 });
    }

    pub fn reverse(&mut self, reverse: Reverse) {
        let hash = self.hash(&reverse.address, reverse.port, reverse.protocol);
        let index =
            self.free(self.limits.reverse_offset, 48, 37, hash, self.directory.reverse_mask);
        self.put(self.limits.reverse_offset, index, &reverse);
    }

    /// Frames to this MAC address are taken on the interface.
    pub fn mac(&mut self, ifindex: u32, address: [u8; 6]) {
        let hash = station_hash(self.directory.vip_seed, ifindex, address);
        let index = self.free(self.limits.macs_offset, 16, 8, hash, MACS as u32 - 1);
        self.put(self.limits.macs_offset, index, &Mac { address, ifindex, ..Mac::default() });
    }

    pub fn service(&mut self, index: usize, service: &Service) {
        self.put(self.limits.services_offset, index, service);
    }

    pub fn backend(&mut self, index: usize, backend: &Backend) {
        self.put(self.limits.backends_offset, index, backend);
    }

    pub fn ring(&mut self, ring: usize, slots: &[u16]) {
        let start = (self.limits.rings_offset - self.limits.directory_offset) as usize
            + ring * self.limits.ring_entries as usize * 2;
        for (position, slot) in slots.iter().enumerate() {
            let at = start + 2 * position;
            self.bytes[at..at + 2].copy_from_slice(&slot.to_ne_bytes());
        }
    }

    /// Sets the memory up, and what the program needs of its state.
    pub fn publish(&self, memory: &Memory, capacity: &Capacity) -> TablesPublisher {
        let mut all = self.clone();
        all.put(self.limits.directory_offset, 0, &self.directory);
        let words: Vec<u64> = all
            .bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        let pins = PogBuilder::<u16>::new()
            .hash::<DigestHash>()
            .fingerprint(pin_form())
            .random_seed(7)
            .build(self.pins.clone())
            .expect("the pins have a POG");
        let sizes = self.limits.shared_sizes(capacity);
        let mut publisher =
            TablesPublisher::create(memory.tables.clone(), sizes, Duration::ZERO, pins.pog(), None)
                .expect("the memory has the sizes");
        publisher.publish_with(pins.pog(), None, &words).expect("the tables have room");
        let state = &memory.state;
        state.pending_mark().store(1 << 14, std::sync::atomic::Ordering::Relaxed);
        state.interval().store(0x9e37_79b9_7f4a_7c15, std::sync::atomic::Ordering::Relaxed);
        publisher
    }
}
