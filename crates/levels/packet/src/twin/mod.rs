//! The program's decision in Rust, over the same memory: for explanations, for tests, and where
//! there is no XDP.
//!
//! In: a parsed packet. Out: a [`Decision`]; with [`Twin::observe`] also what the program writes
//! (pending, touched, log, loads, counters). It makes no packets and is not a data plane.

mod decision;
mod forward;
mod pick;
mod ports;
mod quic;
mod second_chance;
mod state;
mod tables;
mod translated;

use std::collections::HashMap;
use std::net::SocketAddr;

pub use decision::{Decision, Route, Surroundings, Verdict};
use pick::{Choice, Occasion};
pub(crate) use ports::PortState;
use ports::{Answered, Ports};
use state::{Limited, State};
pub use tables::ServiceAt;
use tables::{Tables, VipAnswer};
pub(crate) use translated::Translated;
use translated::digest_at_slot;

use crate::abi::{EventKind, Forward, How, NO_SLOT, Reverse, SERVICE_QUIC, Sender, Service};
use crate::digest::Digest;
use crate::directory::address_of;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::packet::{AddressBytes, Icmp, Parsed, Place, Tuple, protocol};
use crate::reason::Reason;
use crate::tables::{TablesReader, pin_form};

/// `struct eqp_fragment_key`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FragmentKey {
    source: AddressBytes,
    destination: AddressBytes,
    identification: u32,
    protocol: u8,
    family: u8,
}

impl FragmentKey {
    fn of(parsed: &Parsed) -> FragmentKey {
        let Tuple { source, destination, family, .. } = parsed.tuple;
        let (identification, protocol) = (parsed.fragment_id, parsed.fragment_protocol);
        FragmentKey { source, destination, identification, protocol, family }
    }
}

/// `struct eqp_fragment`: of a packet to a VIP, or, without a slot, of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fragment {
    /// Of a reply: the index of its entry of the reverse table.
    digest: Digest,
    service: u16,
    number: u16,
    slot: u16,
    at_ns: u64,
}

/// For how long a first fragment is remembered.
const FRAGMENT_NS: i64 = 30_000_000_000;

/// Decides as the program does.
#[derive(Debug)]
pub struct Twin {
    memory: Memory,
    limits: Limits,
    fragments: HashMap<FragmentKey, Fragment>,
}

impl Twin {
    /// Over the memory of a program, or over memory of its own.
    pub fn new(memory: Memory, limits: Limits) -> Twin {
        Twin { memory, limits, fragments: HashMap::new() }
    }

    /// Where the packet would go now. Writes nothing.
    pub fn decide(&self, parsed: &Parsed, around: &Surroundings) -> Decision {
        let Some(reader) = self.reader() else { return Decision::of(Verdict::Pass) };
        let state = State::new(&self.memory, around.cpu, false);
        reader.read(|view| {
            let tables = Tables::new(view, &self.limits);
            self.run(&Packet { parsed, around, state: &state, tables: &tables }).0
        })
    }

    /// Takes the packet as the program would: with all that it counts, logs and records.
    ///
    /// As the program, it reads the copy that is in force when it begins, and relies on the grace
    /// period.
    pub fn observe(&mut self, parsed: &Parsed, around: &Surroundings) -> Decision {
        let Some(reader) = self.reader() else { return Decision::of(Verdict::Pass) };
        let state = State::new(&self.memory, around.cpu, true);
        let mut taken = None;
        reader.read(|view| {
            taken.get_or_insert_with(|| {
                let tables = Tables::new(view, &self.limits);
                let packet = Packet { parsed, around, state: &state, tables: &tables };
                let (decision, first) = self.run(&packet);
                packet.count(&decision);
                (decision, first)
            });
        });
        let Some((decision, first)) = taken else { return Decision::of(Verdict::Pass) };
        if let Some(fragment) = first {
            self.fragments.insert(FragmentKey::of(parsed), fragment);
        }
        decision
    }

    /// full-nat: the source that a packet of a known flow has at its backend. `decision` is of the
    /// packet.
    pub fn source_of(&self, parsed: &Parsed, decision: &Decision) -> Option<SocketAddr> {
        let (at, slot, (_, backend)) = (decision.service?, decision.slot?, decision.backend?);
        if at.service.forward != Forward::FullNat as u8 {
            return None;
        }
        let (around, state) = (Surroundings::default(), State::new(&self.memory, 0, false));
        let (address, port) = self.reader()?.read(|view| {
            let tables = Tables::new(view, &self.limits);
            let packet = Packet { parsed, around: &around, state: &state, tables: &tables };
            let digest = tables.tuple_digest(&at.service, &parsed.tuple);
            let digest = digest_at_slot(&at.service, digest, slot);
            packet.ports().source_of(at.service.number, digest, backend.number)
        })?;
        Some(SocketAddr::new(address_of(&address, parsed.tuple.family)?, port))
    }

    /// `None`: nothing is published (yet).
    fn reader(&self) -> Option<TablesReader> {
        TablesReader::open(self.memory.tables.clone(), pin_form()).ok()
    }

    fn run(&self, packet: &Packet<'_>) -> (Decision, Option<Fragment>) {
        let parsed = packet.parsed;
        if let Some(mac) = parsed.destination_mac
            && !packet.tables.has_mac(packet.around.ingress_ifindex, mac)
        {
            return (packet.foreign(mac), None);
        }
        let Tuple { family, protocol, destination, .. } = &parsed.tuple;
        if packet.tables.is_source(*family, destination) {
            return self.of_source(packet);
        }
        let address = packet.tables.address(*family, destination);
        let Some(address) = address.filter(|_| !packet.around.replies_only) else {
            return match parsed.place {
                Place::Later => (self.later_reply(packet), None),
                Place::Whole | Place::First => packet.reply(),
            };
        };
        let at = packet.tables.first_service(&address, *protocol);
        let (decision, first) = self.of_vip(packet, at);
        let is_passed = decision.verdict == Verdict::Pass && decision.backend.is_none();
        if is_passed && packet.is_sent_on() && !parsed.is_neighbour_discovery() {
            // The kernel would send it back to the routers, which bring the VIP's packets here.
            return (Decision::drop(Reason::NoService, at), None);
        }
        (decision, first)
    }

    /// Decides about a packet to a VIP's address with the first service `at`; [`Verdict::Pass`] if
    /// no service accepts it.
    fn of_vip(&self, packet: &Packet<'_>, at: Option<ServiceAt>) -> (Decision, Option<Fragment>) {
        let parsed = packet.parsed;
        if let Some(reason) = parsed.fault {
            return (Decision::drop(reason, at), None);
        }
        if parsed.place == Place::Later {
            return (self.later_fragment(packet, at), None);
        }
        match parsed.icmp {
            None => packet.of_flow(&parsed.tuple),
            Some(_) if parsed.place != Place::Whole => (Decision::of(Verdict::Pass), None),
            Some(Icmp::EchoRequest) => (packet.echo(at), None),
            Some(Icmp::ErrorShort) => (Decision::drop(Reason::HeaderShort, at), None),
            Some(Icmp::Error(quoted)) => packet.of_flow(&quoted.turned()),
            Some(Icmp::Discovery | Icmp::Other) => (Decision::of(Verdict::Pass), None),
        }
    }

    /// Returns the record of the first fragment of a packet's datagram.
    fn first_fragment(&self, packet: &Packet<'_>) -> Option<&Fragment> {
        let first = self.fragments.get(&FragmentKey::of(packet.parsed))?;
        let age_ns = packet.around.now_ns.wrapping_sub(first.at_ns).cast_signed();
        (age_ns <= FRAGMENT_NS).then_some(first)
    }

    /// Goes where its first went. `address_at` is the first service of its address.
    fn later_fragment(&self, packet: &Packet<'_>, address_at: Option<ServiceAt>) -> Decision {
        let unknown = Decision::drop(Reason::FragmentUnknown, address_at);
        let Some(first) = self.first_fragment(packet) else {
            let ours = matches!(packet.parsed.fragment_protocol, protocol::TCP | protocol::UDP);
            return if ours { unknown } else { Decision::of(Verdict::Pass) };
        };
        let same = packet.tables.service(first.service);
        let Some(at) = same.filter(|at| at.service.number == first.number) else {
            return unknown;
        };
        if !packet.tables.is_live(&at.service, first.slot) {
            return Decision::drop(Reason::FragmentUnknown, Some(at));
        }
        packet.state.count(Some(at.service.number), Reason::Fragment);
        let decision = packet.forward(at, first.digest, first.slot, How::Fragment);
        packet.with_source(decision, &packet.parsed.tuple, first.digest)
    }

    /// Decides about a packet to a source address of full-nat: a reply, or one to this machine.
    fn of_source(&self, packet: &Packet<'_>) -> (Decision, Option<Fragment>) {
        let parsed = packet.parsed;
        let short = parsed.place == Place::Whole && parsed.icmp == Some(Icmp::ErrorShort);
        if let Some(reason) = parsed.fault.or(short.then_some(Reason::HeaderShort)) {
            return (Decision::drop(reason, None), None);
        }
        let answered = match (parsed.place, parsed.icmp) {
            (Place::Later, _) => self.first_fragment(packet).and_then(|first| {
                let answered = packet.ports().at(first.digest.0 as u32 as usize)?;
                let is_it = first.slot == NO_SLOT && answered.count == first.digest.0 >> 32;
                is_it.then_some(answered)
            }),
            (_, None) => packet.answered(&parsed.tuple),
            (Place::Whole, Some(Icmp::Error(quoted))) => packet.answered(&quoted.turned()),
            _ => None,
        };
        let Some(answered) = answered else {
            let loops = packet.is_sent_on() && !parsed.is_neighbour_discovery();
            let decision = if loops {
                Decision::drop(Reason::NoService, None)
            } else {
                Decision::of(Verdict::Pass)
            };
            return (decision, None);
        };
        let first = (parsed.place == Place::First).then_some(Fragment {
            digest: Digest(answered.index as u64 | answered.count << 32),
            service: answered.at.index as u16,
            number: answered.at.service.number,
            slot: NO_SLOT,
            at_ns: packet.around.now_ns,
        });
        if parsed.icmp.is_none() && parsed.place != Place::Later {
            packet.ports().answered(&answered);
        }
        (packet.send_reply(answered.at, &answered.client), first)
    }
}

impl Twin {
    /// Becomes what its first became.
    fn later_reply(&self, packet: &Packet<'_>) -> Decision {
        let parsed = packet.parsed;
        let found =
            self.first_fragment(packet).filter(|first| first.slot == NO_SLOT).and_then(|first| {
                let reverse = packet.tables.reverse_at(first.digest.0 as u32);
                let number = packet.tables.service(first.service)?.service.number;
                let from = (parsed.tuple.family, &parsed.tuple.source);
                let same = (number, reverse.service) == (first.number, first.service)
                    && (reverse.family, &reverse.address) == from;
                same.then_some(reverse)
            });
        match found.filter(|_| packet.tables.translates() && parsed.fault.is_none()) {
            Some(reverse) => packet.translate(&reverse),
            None => Decision::of(Verdict::Pass),
        }
    }
}

/// One packet on its way through the tables.
struct Packet<'a> {
    parsed: &'a Parsed,
    around: &'a Surroundings,
    state: &'a State<'a>,
    tables: &'a Tables<'a>,
}

impl Packet<'_> {
    /// A frame to another station: counted if that is one station, or if the packet is for a VIP.
    fn foreign(&self, mac: [u8; 6]) -> Decision {
        let Parsed { tuple, place, fault, icmp, .. } = self.parsed;
        let has_ports = fault.is_none()
            && icmp.is_none()
            && *place != Place::Later
            && matches!(tuple.protocol, protocol::TCP | protocol::UDP);
        let number = match self.tables.service_of(tuple) {
            VipAnswer::Service(index) if has_ports => self.tables.service(index),
            _ => None,
        }
        .map(|at| at.service.number);
        if number.is_some() || mac[0] & 1 == 0 {
            self.state.count(number, Reason::ForeignMac);
        }
        Decision::of(Verdict::Pass)
    }

    /// Answers an echo request to an address with the first service `at`.
    fn echo(&self, at: Option<ServiceAt>) -> Decision {
        let per_second = self.tables.directory.echo_per_second;
        if !self.state.admits(Limited::Echo, per_second, self.around.now_ns) {
            return Decision::drop(Reason::IcmpRate, at);
        }
        self.state.count(at.map(|at| at.service.number), Reason::EchoAnswered);
        Decision::of(Verdict::Answer)
    }

    /// A packet of the flow `tuple` (client to VIP), or an error about one.
    fn of_flow(&self, tuple: &Tuple) -> (Decision, Option<Fragment>) {
        let parsed = self.parsed;
        let VipAnswer::Service(index) = self.tables.service_of(tuple) else {
            return (Decision::of(Verdict::Pass), None);
        };
        let Some(at) = self.tables.service(index) else {
            return (Decision::of(Verdict::Pass), None);
        };
        if self.tables.refuses(&at.service, &tuple.source) {
            return (Decision::drop(Reason::SourceDenied, Some(at)), None);
        }
        let digest = self.tables.digest(&at.service, tuple, parsed.source_mac);
        let tcp = tuple.protocol == protocol::TCP;
        let error = parsed.icmp.is_some();
        let occasion = Occasion { opening: parsed.is_opening(), tcp, error };
        let Self { tables, state, .. } = *self;
        let (service, source) = (&at.service, &tuple.source);
        let choice = Choice { tables, state, service, digest, source, occasion };
        let named = self.by_connection_id(&at).map(|slot| (slot, How::ConnectionId));
        let Some((slot, how)) = named.or_else(|| choice.make()) else {
            let nowhere = Decision::drop(Reason::NoBackend, Some(at));
            return (Decision { digest: Some(digest), ..nowhere }, None);
        };
        let number = at.service.number;
        if parsed.icmp.is_some() {
            state.count(Some(number), Reason::IcmpSteered);
        } else if parsed.is_opening() {
            state.note_opening(number, digest, slot, how);
        } else {
            state.learn(number, digest, slot, how, event_kind(parsed));
        }
        let mut first = (parsed.place == Place::First).then_some(Fragment {
            digest,
            service: index,
            number,
            slot,
            at_ns: self.around.now_ns,
        });
        let decision = self.forward(at, digest, slot, how);
        if at.service.forward == Forward::Nat as u8 && !error && is_forwarded(&decision) {
            let known = self.tables.tuple_digest(&at.service, tuple);
            let known = digest_at_slot(&at.service, known, slot);
            let recorded = self.translated(&at.service, tuple.protocol).put(known, slot);
            if recorded.is_none() {
                state.count(Some(number), Reason::RepliesFull);
            }
            if recorded.unwrap_or(true) {
                self.note_sender(tuple);
            }
        }
        if at.service.forward != Forward::FullNat as u8 || !is_forwarded(&decision) {
            return (decision, first);
        }
        let known = self.tables.tuple_digest(&at.service, tuple);
        first.iter_mut().for_each(|first| first.digest = known);
        (self.with_source(decision, tuple, known), first)
    }

    fn ports(&self) -> Ports<'_> {
        Ports::new(self.state, self.tables, self.parsed, self.around.now_ns)
    }

    /// The flow of a reply to a source address of full-nat.
    fn answered(&self, from: &Tuple) -> Option<Answered> {
        let ours = matches!(from.protocol, protocol::TCP | protocol::UDP);
        ours.then(|| self.ports().of_reply(from)).flatten()
    }

    /// full-nat: the packet leaves if its flow has a source. `digest` is of the flow's five-tuple.
    fn with_source(&self, decision: Decision, tuple: &Tuple, digest: Digest) -> Decision {
        let (Some(at), Some((_, backend))) = (decision.service, decision.backend) else {
            return decision;
        };
        if at.service.forward != Forward::FullNat as u8 || !is_forwarded(&decision) {
            return decision;
        }
        let is_error = self.parsed.icmp.is_some();
        let is_later = self.parsed.place == Place::Later;
        let keeps = is_error || is_later;
        let digest = digest_at_slot(&at.service, digest, decision.slot.unwrap_or_default());
        let reason = match self.ports().asked(at.service.number, &backend, tuple, digest, keeps) {
            Some(changed) => {
                if changed {
                    self.note_sender(tuple);
                }
                return decision;
            }
            None if is_later => Reason::FragmentUnknown,
            None if is_error && !self.is_sent_on() => {
                return Decision { verdict: Verdict::Pass, ..decision };
            }
            None if is_error => Reason::NoService,
            None => Reason::PortsExhausted,
        };
        Decision { verdict: Verdict::Drop(reason), ..decision }
    }

    /// Whether the kernel would send a packet to this address on to the routers.
    fn is_sent_on(&self) -> bool {
        matches!(self.around.route, Route::Out(_) | Route::KernelForwards | Route::NoNeighbour(_))
    }

    /// Returns the slot of the backend that the packet's connection id names.
    fn by_connection_id(&self, at: &ServiceAt) -> Option<u16> {
        if at.service.flags & SERVICE_QUIC == 0 || self.parsed.icmp.is_some() {
            return None;
        }
        let named = quic::slot(self.parsed, at, self.tables);
        if let Err(reason) = named {
            self.state.count(Some(at.service.number), reason);
        }
        named.ok()
    }

    fn note_sender(&self, tuple: &Tuple) {
        let Some(own_mac) = self.parsed.destination_mac else { return };
        let sender = Sender {
            address: tuple.source,
            own_mac,
            sender_mac: self.parsed.source_mac,
            ifindex: self.around.ingress_ifindex,
        };
        self.state.note_sender(self.tables.sender_index(&tuple.source), &sender);
    }

    /// The client of a reply.
    fn client(&self) -> AddressBytes {
        match self.parsed.icmp {
            Some(Icmp::Error(quoted)) => quoted.turned().destination,
            _ => self.parsed.tuple.destination,
        }
    }

    /// Whether a client is known to send by this interface.
    fn is_sender(&self, client: &AddressBytes, ifindex: u32) -> bool {
        let index = self.tables.sender_index(client);
        self.state.sender_ifindex(index, client) == Some(ifindex)
    }

    fn translated(&self, service: &Service, of: u8) -> Translated<'_> {
        Translated::new(self.state, self.tables, self.parsed, (service, of), self.around.now_ns)
    }

    /// Whether a client opened the flow of the reply `from` by the VIP, and to this backend.
    fn is_asked_for(&self, at: &ServiceAt, from: &Tuple, reverse: &Reverse) -> bool {
        if self.tables.translates_all() {
            return true;
        }
        let vip_port = u16::from_be_bytes(reverse.vip_port);
        let asked = Tuple {
            source: from.destination,
            source_port: from.destination_port,
            destination: reverse.vip,
            destination_port: if vip_port == 0 { from.source_port } else { vip_port },
            ..*from
        };
        let digest = self.tables.tuple_digest(&at.service, &asked);
        let slot = u32::from(reverse.backend).wrapping_sub(at.service.backends_first) as u16;
        let digest = digest_at_slot(&at.service, digest, slot);
        self.translated(&at.service, from.protocol).find(digest, slot)
    }

    fn forward(&self, at: ServiceAt, digest: Digest, slot: u16, how: How) -> Decision {
        let Some((index, backend)) = self.tables.backend(&at.service, slot) else {
            return Decision::drop(Reason::Tables, Some(at));
        };
        let directory = &self.tables.directory;
        let verdict = forward::forward(
            self.parsed,
            &at.service,
            &backend,
            directory,
            self.around,
            self.state,
        );
        let is_sent = matches!(verdict, Verdict::Transmit | Verdict::Redirect(_));
        let find = || {
            let chosen = (slot, &backend);
            second_chance::find(self.tables, &at.service, digest, chosen, self.parsed)
        };
        let second = is_sent.then(find).flatten();
        if second.is_some() {
            self.state.count(Some(at.service.number), Reason::SecondChance);
        }
        Decision {
            second,
            verdict,
            service: Some(at),
            digest: Some(digest),
            slot: Some(slot),
            backend: Some((index, backend)),
            how: Some(how),
        }
    }

    /// A packet that is for no VIP: a backend's reply to be translated, or none of ours.
    fn reply(&self) -> (Decision, Option<Fragment>) {
        let parsed = self.parsed;
        let from = match parsed.icmp {
            None => parsed.tuple,
            Some(Icmp::Error(quoted)) => quoted.turned(),
            Some(_) => return (Decision::of(Verdict::Pass), None),
        };
        let ours = self.tables.translates()
            && parsed.fault.is_none()
            && (parsed.icmp.is_none() || parsed.place == Place::Whole)
            && matches!(from.protocol, protocol::TCP | protocol::UDP);
        let Some((index, reverse)) = ours.then(|| self.tables.reverse(&from)).flatten() else {
            return (Decision::of(Verdict::Pass), None);
        };
        if let Some(at) = self.tables.service(reverse.service)
            && !self.is_asked_for(&at, &from, &reverse)
        {
            return (Decision::of(Verdict::Pass), None);
        }
        let decision = self.translate(&reverse);
        let is_first = parsed.place == Place::First && self.is_translated(&decision);
        let first = decision.service.filter(|_| is_first).map(|at| Fragment {
            digest: Digest(u64::from(index)),
            service: reverse.service,
            number: at.service.number,
            slot: NO_SLOT,
            at_ns: self.around.now_ns,
        });
        (decision, first)
    }

    /// Whether a reply was written anew, wherever it then went.
    fn is_translated(&self, decision: &Decision) -> bool {
        self.around.route != Route::Local && decision.verdict != Verdict::Drop(Reason::TtlExpired)
    }

    fn translate(&self, reverse: &Reverse) -> Decision {
        let Some(at) = self.tables.service(reverse.service) else {
            return Decision::drop(Reason::Tables, None);
        };
        if self.around.route == Route::Local {
            return Decision::of(Verdict::Pass);
        }
        self.send_reply(at, &self.client())
    }

    /// Sends a translated reply to its client.
    fn send_reply(&self, at: ServiceAt, client: &AddressBytes) -> Decision {
        let number = Some(at.service.number);
        if self.parsed.ttl <= 1 {
            return Decision::drop(Reason::TtlExpired, Some(at));
        }
        self.state.count(number, Reason::Reply);
        let verdict = match self.around.route {
            Route::Out(ifindex) => Verdict::out_of(ifindex, self.around),
            // It goes back where the client's packets come from.
            Route::NoNeighbour(ifindex) if self.is_sender(client, ifindex) => {
                Verdict::out_of(ifindex, self.around)
            }
            Route::None => Verdict::Drop(Reason::NoRoute),
            Route::Local | Route::Kernel | Route::KernelForwards | Route::NoNeighbour(_) => {
                self.state.count(number, Reason::ToKernel);
                Verdict::Pass
            }
        };
        Decision { service: Some(at), ..Decision::of(verdict) }
    }

    /// Counts what became of the packet.
    fn count(&self, decision: &Decision) {
        let service = decision.service.map(|at| at.service.number);
        match (decision.verdict, service, decision.backend, decision.how) {
            (Verdict::Drop(reason), _, backend, _) => {
                self.state.count(service, reason);
                backend.iter().for_each(|(_, it)| self.state.count_backend_drop(it.number));
            }
            // Larger than the path to the backend.
            (Verdict::Answer, _, Some((_, backend)), _) => {
                self.state.count_backend_drop(backend.number);
            }
            (
                Verdict::Transmit | Verdict::Redirect(_),
                Some(number),
                Some((_, backend)),
                Some(how),
            ) => {
                let bytes = self.parsed.frame_bytes;
                self.state.count_forwarded(number, backend.number, how, bytes);
            }
            _ => {}
        }
    }
}

fn is_forwarded(decision: &Decision) -> bool {
    matches!(decision.verdict, Verdict::Transmit | Verdict::Redirect(_))
}

fn event_kind(parsed: &Parsed) -> EventKind {
    match (parsed.is_rst(), parsed.is_fin()) {
        (true, _) => EventKind::Rst,
        (false, true) => EventKind::Fin,
        (false, false) => EventKind::Touch,
    }
}
