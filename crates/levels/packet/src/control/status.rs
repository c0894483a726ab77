//! Status of the packet level.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use equipoise_core::{AdminState, Generation};

use super::Control;
use super::service::Service;
use crate::abi::{HOWS, REASONS};
use crate::snapshot::{BackendId, BackendSpec, Standing, VipId};

/// Result of one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Events read from the logs.
    pub events: usize,
    /// Flows added to the registry.
    pub learnt: usize,
    /// Flows forgotten because they were idle.
    pub expired: usize,
    /// Flows that the full registry rejected or replaced by a flow with more evidence.
    pub registry_full: usize,
    /// Flows that lost their backend: it is down, removed by force, or there is no room for a pin.
    pub moved: usize,
    /// Flows without room for a pin; part of `moved`.
    pub pins_full: usize,
    /// Published epoch, if any.
    pub published: Option<u64>,
    /// VIPs with a transition that began.
    pub began: Vec<VipId>,
    /// VIPs with a transition that ended.
    pub settled: Vec<VipId>,
    /// Drained backends: their last flow has ended and their slot is free.
    pub drained: Vec<(VipId, BackendId)>,
}

/// All counters and states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Generation of the current snapshot.
    pub generation: Generation,
    /// By VIP, in no particular order.
    pub vips: Vec<VipStatus>,
    /// Packets without a VIP, by [`Reason`](crate::Reason).
    pub reasons: [u64; REASONS],
    /// Number of flows in the registry.
    pub flows: usize,
    /// Capacity of the registry, in flows.
    pub flows_max: usize,
    /// Size of the registry, bytes.
    pub registry_bytes: usize,
    /// Flows that the full registry rejected or replaced by a flow with more evidence, since the
    /// start.
    pub registry_full: u64,
    /// Number of pinned flows.
    pub pins: usize,
    /// Maximum number of pinned flows.
    pub pins_max: usize,
    /// Flows without room for a pin, since the start.
    pub pins_full: u64,
    /// Flows that lost their backend, since the start.
    pub moved: u64,
    /// Flows in pending, over all memories.
    pub pending: usize,
    /// Publications since the start.
    pub publications: u64,
    /// Time of the last publication.
    pub published_at: Option<Instant>,
}

/// Status of a VIP. Counts start when the control side first had the VIP, and include restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipStatus {
    /// The VIP.
    pub vip: VipId,
    /// Progress of a change of its pool.
    pub phase: Phase,
    /// Number of known flows.
    pub flows: usize,
    /// Packets forwarded.
    pub packets: u64,
    /// Bytes forwarded.
    pub bytes: u64,
    /// Packets by [`How`](crate::abi::How).
    pub hows: [u64; HOWS],
    /// Packets by [`Reason`](crate::Reason).
    pub reasons: [u64; REASONS],
    /// Its backends, including those that are no longer in the snapshot and still drain.
    pub backends: Vec<BackendStatus>,
}

/// Progress of a change of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The tables are those of the snapshot.
    #[default]
    Steady,
    /// A change waits for the previous one.
    Waiting,
    /// A change is announced: flows that it would move are recorded.
    Transition,
    /// A change is made: recorded flows are being pinned.
    Absorbing,
}

/// Status of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// The backend.
    pub backend: BackendId,
    /// Its slot; `None` while it receives no packets.
    pub slot: Option<u16>,
    /// Kind of packets that it may receive.
    pub standing: Standing,
    /// Whether it is a backup that rests, because another backend gets new flows.
    pub is_standby: bool,
    /// The reason why it receives nothing, if the snapshot lists it.
    pub gone: Option<Gone>,
    /// Whether the snapshot lists it.
    pub listed: bool,
    /// Whether the MAC address of its next hop is known.
    pub reachable: bool,
    /// Number of open flows.
    pub active: u32,
    /// Number of closing flows.
    pub inactive: u32,
    /// Packets forwarded.
    pub packets: u64,
    /// Bytes forwarded.
    pub bytes: u64,
    /// Packets dropped after it was chosen.
    pub drops: u64,
}

/// The reason why a listed backend receives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    /// An operator or the file disabled it.
    Disabled,
    /// Its checks fail, and its flows have moved.
    Unhealthy,
}

impl Control {
    /// Returns all counters and states.
    pub fn status(&self) -> Status {
        let mut reasons = [0; REASONS];
        for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
            add(&mut reasons, cpu.reasons(None));
        }
        let services = (0..).zip(&self.services);
        Status {
            generation: self.generation,
            vips: services.filter_map(|(it, s)| Some(self.vip_status(it, s.as_ref()?))).collect(),
            reasons,
            flows: self.flows.registry.len(),
            flows_max: self.flows.registry.flows_max() as usize,
            registry_bytes: self.flows.registry.bytes(),
            registry_full: self.totals.registry_full,
            pins: self.pins.len(),
            pins_max: self.pins.room(),
            pins_full: self.totals.pins_full,
            moved: self.totals.moved,
            pending: self.pending.iter().map(|pending| pending.len()).sum(),
            publications: self.totals.publications,
            published_at: (self.totals.publications > 0).then_some(self.clocks.published_at),
        }
    }

    fn vip_status(&self, number: u16, service: &Service) -> VipStatus {
        let (mut hows, mut reasons) = ([0; HOWS], [0; REASONS]);
        let [mut packets, mut bytes] = [0; 2];
        for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
            let counted = cpu.service(usize::from(number));
            packets += counted[0];
            bytes += counted[1];
            add(&mut hows, cpu.hows(usize::from(number)));
            add(&mut reasons, cpu.reasons(Some(usize::from(number))));
        }
        let listed = service.listed.iter().map(BackendSpec::id);
        let leaving = service.slots.held().map(|(_, it)| it.backend);
        let leaving = leaving.filter(|it| !service.listed.iter().any(|listed| listed.id() == *it));
        let backends = listed.chain(leaving).map(|it| self.backend_status(number, service, it));
        VipStatus {
            vip: service.id,
            phase: service.phase(),
            flows: self.flows.total(number),
            packets,
            bytes,
            hows,
            reasons,
            backends: backends.collect(),
        }
    }

    fn backend_status(&self, number: u16, service: &Service, backend: BackendId) -> BackendStatus {
        let slot = service.slots.of(&backend);
        let spec = service.listed.iter().find(|spec| spec.id() == backend);
        let [active, inactive] = slot.map_or([0; 2], |slot| self.flows.tally(number, slot));
        let counter = self.numbers.find(service.id, backend).map(usize::from);
        let [mut packets, mut bytes, mut drops] = [0; 3];
        for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
            let Some(counter) = counter else { break };
            let counted = cpu.backend(counter);
            packets += counted[0];
            bytes += counted[1];
            drops += cpu.backend_drops(counter);
        }
        let hop = self.hops.get(&backend.address);
        BackendStatus {
            backend,
            slot,
            standing: spec.map_or(Standing::Draining, BackendSpec::standing),
            is_standby: spec.is_some_and(BackendSpec::is_standby),
            gone: spec.and_then(gone),
            listed: spec.is_some(),
            reachable: hop.is_some_and(|hop| hop.destination_mac.is_some()),
            active,
            inactive,
            packets,
            bytes,
            drops,
        }
    }
}

fn gone(spec: &BackendSpec) -> Option<Gone> {
    let why = if spec.admin == AdminState::Down { Gone::Disabled } else { Gone::Unhealthy };
    (spec.standing() == Standing::Gone).then_some(why)
}

fn add(sums: &mut [u64], counters: &[AtomicU64]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.load(Relaxed);
    }
}
