//! The sources of full-nat's flows: `bpf/include/ports.h`, `port_index.h` and `port_open.h`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::state::State;
use super::tables::{ServiceAt, Tables};
use crate::abi::{Backend, SourceSet, TRANSLATED_TICK_SHIFT};
use crate::digest::Digest;
use crate::memory::PortsMemory;
use crate::packet::{AddressBytes, Parsed, TCP_ACK, TCP_SYN, Tuple, protocol};

const TRIES: u64 = 64;
const TRIES_FREE: u64 = 8;
const SHORT: u64 = 5;
const ONE_ANSWER: u64 = 14;

const TIME_MASK: u64 = 0xffff;
const STAGE_SHIFT: u32 = 16;
const STAGE_MASK: u64 = 7;
const UDP: u64 = 1 << 19;
const SET: u64 = 1 << 20;
const OWED_SHIFT: u32 = 21;
const OWED_MASK: u64 = 0x7ff;
const BACKEND_SHIFT: u32 = 32;
const COUNT_SHIFT: u32 = 48;
const INDEX_SET: u64 = 1 << 29;
const INDEX_MASK: u64 = INDEX_SET - 1;
const DIGEST_SHIFT: u32 = 30;

const TAKEN: u64 = 0;
const OPENING: u64 = 1;
const ANSWERED: u64 = 2;
const ESTABLISHED: u64 = 3;
const CLOSING: u64 = 4;
const RESET: u64 = 5;

/// Words of `eqp_port`.
const WORD: usize = 0;
const KEY: usize = 1;
const DIGEST: usize = 2;
const CLIENT: usize = 3;
const SOURCE: usize = 5;
const PORTS: usize = 7;

/// The flow of a reply.
pub(super) struct Answered {
    pub(super) index: usize,
    /// Changes with each flow of the port.
    pub(super) count: u64,
    pub(super) at: ServiceAt,
    pub(super) client: AddressBytes,
    word: u64,
}

/// The table, for one packet.
pub(super) struct Ports<'a> {
    memory: &'a PortsMemory,
    tables: &'a Tables<'a>,
    parsed: &'a Parsed,
    tick: u64,
    /// Otherwise nothing is written.
    writes: bool,
}

impl<'a> Ports<'a> {
    pub(super) fn new(
        state: &State<'a>,
        tables: &'a Tables<'a>,
        parsed: &'a Parsed,
        now_ns: u64,
    ) -> Ports<'a> {
        let tick = (now_ns >> TRANSLATED_TICK_SHIFT) & TIME_MASK;
        Ports { memory: &state.memory().ports, tables, parsed, tick, writes: state.writes() }
    }

    fn age(&self, word: u64) -> u64 {
        age(word, self.tick)
    }

    fn is_over(&self, port: &[AtomicU64], word: u64) -> bool {
        let Some(set) = self.tables.source_set(service_of(port)) else { return true };
        self.age(word) > life(word, [set.tcp, set.closing, set.udp])
    }

    fn change(&self, at: &AtomicU64, before: u64, after: u64) {
        if self.writes {
            let _ = at.compare_exchange(before, after, AcqRel, Acquire);
        }
    }

    /// Returns the place of a known flow, with its word.
    pub(super) fn find(&self, digest: Digest) -> Option<(usize, u64)> {
        let line = self.memory.line(digest.0).iter().map(|at| at.load(Acquire));
        let leads = line.into_iter().find(|word| is_of(*word, digest))?;
        let index = (leads & INDEX_MASK) as usize;
        let port = self.memory.port(index);
        let word = port[WORD].load(Acquire);
        let is_it = word != 0 && port[DIGEST].load(Relaxed) == digest.0 && stage_of(word) != TAKEN;
        is_it.then_some((index, word))
    }

    /// Whether a packet of the client has a source at the backend, which a new flow gets; and
    /// whether the flow's word changed. `keeps`: it is no packet of the flow.
    pub(super) fn asked(
        &self,
        service: u16,
        backend: &Backend,
        tuple: &Tuple,
        digest: Digest,
        keeps: bool,
    ) -> Option<bool> {
        let of_backend =
            |(_, word): &(usize, u64)| (word >> BACKEND_SHIFT) as u16 == backend.number;
        let known = self.find(digest).filter(of_backend);
        let is_answered = |(index, _): &(usize, u64)| self.is_answered(*index, service);
        if keeps {
            return known.filter(is_answered).map(|_| false);
        }
        let Some((index, word, after)) = known
            .map(|(index, word)| (index, word, self.after_asked(word)))
            .filter(|(index, word, after)| word == after || is_answered(&(*index, *word)))
        else {
            return self.open(service, backend, tuple, digest).then_some(true);
        };
        self.change(&self.memory.port(index)[WORD], word, after);
        Some(word != after)
    }

    /// Whether replies to a port of the packet's flow are translated.
    fn is_answered(&self, index: usize, service: u16) -> bool {
        let port = self.memory.port(index);
        let family = self.parsed.tuple.family;
        service_of(port) == service && self.tables.is_source(family, &address_at(port, SOURCE))
    }

    /// The flow's word after a packet of the client.
    fn after_asked(&self, word: u64) -> u64 {
        let stage = match stage_of(word) {
            ANSWERED if self.is_proven(word) => ESTABLISHED,
            stage => stage,
        };
        let ends = self.parsed.is_fin() || self.parsed.is_rst();
        let stage = match stage {
            ESTABLISHED if ends => CLOSING,
            stage if stage > ESTABLISHED && !ends && self.parsed.is_opening() => OPENING,
            stage => stage,
        };
        self.word(word, stage)
    }

    /// Whether the client's packet shows that it received the backend's answer.
    fn is_proven(&self, word: u64) -> bool {
        let [_, acknowledged] = self.parsed.tcp_numbers;
        let acknowledged = u64::from(acknowledged >> OWED_SHIFT);
        let is_owed = acknowledged.wrapping_sub(word >> OWED_SHIFT) & OWED_MASK <= 1;
        !self.parsed.is_tcp() || (self.parsed.tcp_flags & TCP_ACK != 0 && is_owed)
    }

    /// The word of the same flow, now.
    fn word(&self, word: u64, stage: u64) -> u64 {
        (word & !(TIME_MASK | STAGE_MASK << STAGE_SHIFT)) | self.tick | stage << STAGE_SHIFT
    }

    /// Gives a new flow a source; false: none is free.
    fn open(&self, service: u16, backend: &Backend, tuple: &Tuple, digest: Digest) -> bool {
        let Some(set) = self.tables.source_set(service).filter(|set| set.sources > 0) else {
            return false;
        };
        let Some((key, seen, source, source_port)) = self.search(&set, backend, tuple, digest)
        else {
            return false;
        };
        let index = key as usize & (self.memory.ports_max() - 1);
        let port = self.memory.port(index);
        let is_udp = if tuple.protocol == protocol::UDP { UDP } else { 0 };
        let count = (seen >> COUNT_SHIFT).wrapping_add(1) << COUNT_SHIFT;
        let taken = SET | u64::from(backend.number) << BACKEND_SHIFT | count | is_udp;
        if self.writes && seen != 0 {
            self.remove(Digest(port[DIGEST].load(Relaxed)), index);
        }
        let Some((leads, before)) = self.lead_place(digest) else {
            if self.writes {
                port[WORD].store(0, Relaxed);
            }
            return false;
        };
        if self.writes {
            let words = |bytes: &AddressBytes| {
                [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|it| bytes[at + it])))
            };
            let store = |at: usize, value: u64| port[at].store(value, Relaxed);
            store(KEY, key);
            store(DIGEST, digest.0);
            for (at, bytes) in [(CLIENT, &tuple.source), (SOURCE, &source)] {
                let [low, high] = words(bytes);
                store(at, low);
                store(at + 1, high);
            }
            let ports = [tuple.source_port, tuple.destination_port, source_port, service.to_be()];
            let ports = ports.map(u16::to_be_bytes).concat();
            store(PORTS, u64::from_ne_bytes(std::array::from_fn(|at| ports[at])));
            port[WORD].store(self.word(taken, OPENING), Relaxed);
        }
        self.change(leads, before, lead(digest, index));
        true
    }

    /// Finds a source whose place is free, else the oldest unproven flow's: key, the place's word,
    /// address and port.
    fn search(
        &self,
        set: &SourceSet,
        backend: &Backend,
        tuple: &Tuple,
        digest: Digest,
    ) -> Option<(u64, u64, AddressBytes, u16)> {
        let backend_port = match u16::from_be_bytes(backend.port) {
            0 => tuple.destination_port,
            port => port,
        };
        let (mut unproven, mut age) = (None, 0);
        for one in 0..TRIES {
            let mut x = digest.0.wrapping_add(self.tick).wrapping_add(one);
            x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^= x >> 31;
            let source = u64::from(set.first) + (((x & 0xffff) * u64::from(set.sources)) >> 16);
            let source = self.tables.source(source as u32);
            let port = set.port_first + (((x >> 16 & 0xffff) * u64::from(set.ports)) >> 16) as u16;
            let reply = Tuple {
                source: backend.address,
                destination: source,
                source_port: backend_port,
                destination_port: port,
                ..*tuple
            };
            let key = self.tables.port_key(&reply);
            let place = self.memory.port(key as usize);
            let word = place[WORD].load(Acquire);
            let found = (key, word, source, port);
            if word == 0 || self.is_over(place, word) {
                return Some(found);
            }
            if is_unproven(word) && self.age(word) + 1 > age {
                (unproven, age) = (Some(found), self.age(word) + 1);
            }
            if unproven.is_some() && one + 1 >= TRIES_FREE {
                break;
            }
        }
        unproven
    }

    /// The word to write for a flow in its line, with its value; `None`: the line is full of flows
    /// that keep their ports.
    fn lead_place(&self, digest: Digest) -> Option<(&AtomicU64, u64)> {
        let line = self.memory.line(digest.0);
        let free = line.iter().map(|at| (at, at.load(Acquire)));
        let mut free = free.filter(|(_, word)| *word == 0 || is_of(*word, digest));
        if let Some(free) = free.next() {
            return Some(free);
        }
        let mut unproven = None;
        for step in 0..line.len() {
            let way = &line[((digest.0 >> DIGEST_SHIFT) as usize + step) & (line.len() - 1)];
            let seen = way.load(Acquire);
            let port = self.memory.port((seen & INDEX_MASK) as usize);
            let word = port[WORD].load(Acquire);
            let leads = is_of(seen, Digest(port[DIGEST].load(Relaxed)));
            if word == 0 || !leads || self.is_over(port, word) {
                return Some((way, seen));
            }
            if is_unproven(word) && unproven.is_none() {
                unproven = Some((way, seen));
            }
        }
        unproven
    }

    fn remove(&self, digest: Digest, index: usize) {
        let word = lead(digest, index);
        let line = self.memory.line(digest.0).iter();
        line.filter(|at| at.load(Acquire) == word).for_each(|at| self.change(at, word, 0));
    }

    /// The source of a service's known flow to a backend.
    pub(super) fn source_of(
        &self,
        service: u16,
        digest: Digest,
        backend: u16,
    ) -> Option<(AddressBytes, u16)> {
        let (index, word) = self.find(digest)?;
        let port = self.memory.port(index);
        let is_it = (word >> BACKEND_SHIFT) as u16 == backend && self.is_answered(index, service);
        is_it.then(|| (address_at(port, SOURCE), ports_of(port)[2]))
    }

    /// The flow of a reply to a source address.
    pub(super) fn of_reply(&self, from: &Tuple) -> Option<Answered> {
        let key = self.tables.port_key(from);
        let answered = self.at(key as usize)?;
        (self.memory.port(answered.index)[KEY].load(Relaxed) == key).then_some(answered)
    }

    /// The flow at an index.
    pub(super) fn at(&self, index: usize) -> Option<Answered> {
        let index = index & (self.memory.ports_max() - 1);
        let port = self.memory.port(index);
        let word = port[WORD].load(Acquire);
        let number = service_of(port);
        let set = self.tables.source_set(number).filter(|set| set.sources > 0)?;
        let at = self.tables.service(set.service).filter(|at| at.service.number == number)?;
        let client = address_at(port, CLIENT);
        let is_used = word != 0 && stage_of(word) != TAKEN;
        is_used.then_some(Answered { index, count: word >> COUNT_SHIFT, at, client, word })
    }

    /// Records a reply of the backend.
    pub(super) fn answered(&self, answered: &Answered) {
        let opens = !self.parsed.is_tcp() || !self.parsed.tcp_flags & (TCP_SYN | TCP_ACK) == 0;
        let mut word = answered.word;
        let stage = match stage_of(word) {
            _ if self.parsed.is_rst() => RESET,
            _ if self.parsed.is_fin() => CLOSING,
            OPENING | ANSWERED if opens => {
                if self.parsed.is_tcp() {
                    let owed = self.parsed.tcp_numbers[0].wrapping_add(1) >> OWED_SHIFT;
                    word = (word & !(OWED_MASK << OWED_SHIFT)) | u64::from(owed) << OWED_SHIFT;
                }
                ANSWERED
            }
            stage => stage,
        };
        let after = self.word(word, stage);
        self.change(&self.memory.port(answered.index)[WORD], answered.word, after);
    }
}

/// A port in use, for its counts and its flow.
pub(crate) struct PortState {
    word: u64,
    /// Number of its service.
    pub(crate) service: u16,
    /// Number of its backend.
    pub(crate) backend: u16,
}

impl PortState {
    /// `None`: the port is free.
    pub(crate) fn of(port: &[AtomicU64]) -> Option<PortState> {
        let word = port[WORD].load(Acquire);
        let backend = (word >> BACKEND_SHIFT) as u16;
        (word != 0).then(|| PortState { word, service: service_of(port), backend })
    }

    /// The source address of its flow.
    pub(crate) fn source(&self, port: &[AtomicU64]) -> AddressBytes {
        address_at(port, SOURCE)
    }

    /// The client of its flow, the port of the VIP and the source, with their ports.
    pub(crate) fn flow(&self, port: &[AtomicU64]) -> PortFlow {
        let [client_port, vip_port, source_port] = ports_of(port);
        let (client, source) = (address_at(port, CLIENT), address_at(port, SOURCE));
        PortFlow { client: (client, client_port), vip_port, source: (source, source_port) }
    }

    /// Seconds since the last packet of its flow, accurate to 2 s.
    pub(crate) fn idle_seconds(&self, now_ns: u64) -> u64 {
        let ticks = age(self.word, (now_ns >> TRANSLATED_TICK_SHIFT) & TIME_MASK);
        (ticks << TRANSLATED_TICK_SHIFT) / 1_000_000_000
    }

    /// Ticks until its flow expires without packets, by those of its service: established TCP,
    /// closing TCP, UDP. `None`: it has expired.
    pub(crate) fn ticks_left(&self, lives: [u16; 3], now_ns: u64) -> Option<u64> {
        let age = age(self.word, (now_ns >> TRANSLATED_TICK_SHIFT) & TIME_MASK);
        life(self.word, lives).checked_sub(age)
    }
}

/// The flow of a port.
pub(crate) struct PortFlow {
    /// Address and port of the client.
    pub(crate) client: (AddressBytes, u16),
    /// Port of the VIP.
    pub(crate) vip_port: u16,
    /// Address and port that the backend sees.
    pub(crate) source: (AddressBytes, u16),
}

/// Reads the address that begins at a word of a port.
fn address_at(port: &[AtomicU64], word: usize) -> AddressBytes {
    let mut address = AddressBytes::default();
    for (bytes, word) in address.as_chunks_mut::<8>().0.iter_mut().zip(&port[word..]) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    address
}

/// The client's port, the VIP's and the source's.
fn ports_of(port: &[AtomicU64]) -> [u16; 3] {
    let bytes = port[PORTS].load(Relaxed).to_ne_bytes();
    [0, 2, 4].map(|at| u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Ticks since the flow's last packet. Another CPU may have stored the next tick after this one
/// read the clock.
fn age(word: u64, tick: u64) -> u64 {
    let age = tick.wrapping_sub(word) & TIME_MASK;
    if age == TIME_MASK { 0 } else { age }
}

/// Ticks without packets after which the flow has expired.
fn life(word: u64, [tcp, closing, udp]: [u16; 3]) -> u64 {
    let is_udp = word & UDP != 0;
    match stage_of(word) {
        ANSWERED if is_udp => u64::from(udp).min(ONE_ANSWER),
        ESTABLISHED if is_udp => udp.into(),
        ESTABLISHED => tcp.into(),
        CLOSING => closing.into(),
        _ => SHORT,
    }
}

/// The word that leads from a flow to its place.
fn lead(digest: Digest, index: usize) -> u64 {
    ((digest.0 >> DIGEST_SHIFT) << DIGEST_SHIFT) | INDEX_SET | index as u64
}

fn is_of(word: u64, digest: Digest) -> bool {
    word != 0 && (word ^ digest.0) >> DIGEST_SHIFT == 0
}

fn stage_of(word: u64) -> u64 {
    word >> STAGE_SHIFT & STAGE_MASK
}

fn is_unproven(word: u64) -> bool {
    matches!(stage_of(word), OPENING | ANSWERED | RESET)
}

/// The number of a port's service.
fn service_of(port: &[AtomicU64]) -> u16 {
    let [.., low, high] = port[PORTS].load(Relaxed).to_ne_bytes();
    u16::from_ne_bytes([low, high])
}
