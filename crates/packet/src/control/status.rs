//! What can be asked about the packet level.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use equipoise_core::Generation;

use super::Control;
use super::service::Service;
use crate::abi::{HOWS, REASONS};
use crate::snapshot::{BackendId, BackendSpec, Standing, VipId};

/// What one tick did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Events taken from the logs.
    pub events: usize,
    /// Flows newly in the registry.
    pub learnt: usize,
    /// Flows forgotten because they were not seen.
    pub expired: usize,
    /// Flows for which the full registry had no room, or which gave way to a flow with more evidence.
    pub registry_full: usize,
    /// Flows that lost their backend, which is down, removed by force or beyond the room for pins.
    pub moved: usize,
    /// Flows for which there was no room among the pins; part of `moved`.
    pub pins_full: usize,
    /// The epoch that was published, if one was.
    pub published: Option<u64>,
    /// VIPs whose transition began.
    pub began: Vec<VipId>,
    /// VIPs whose transition is over.
    pub settled: Vec<VipId>,
    /// Backends that drained: their last flow is gone and their slot is free.
    pub drained: Vec<(VipId, BackendId)>,
}

/// Everything that can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Of the snapshot in force.
    pub generation: Generation,
    /// By VIP, in no particular order.
    pub vips: Vec<VipStatus>,
    /// Packets of no VIP, by [`Reason`](crate::Reason).
    pub reasons: [u64; REASONS],
    /// Flows in the registry, and its room.
    pub flows: usize,
    /// Flows that it has room for.
    pub flows_max: usize,
    /// Bytes of the registry.
    pub registry_bytes: usize,
    /// Flows for which the full registry had no room, or which gave way to a flow with more evidence, since the start.
    pub registry_full: u64,
    /// Flows that are pinned.
    pub pins: usize,
    /// Pins that there is room for.
    pub pins_max: usize,
    /// Flows that found no room among the pins, since the start.
    pub pins_full: u64,
    /// Flows that lost their backend, since the start.
    pub moved: u64,
    /// Flows in pending, over all memories.
    pub pending: usize,
    /// Publications since the start.
    pub publications: u64,
    /// When the last one was.
    pub published_at: Option<Instant>,
}

/// Of a VIP. Counts are since the control side first had the VIP, restarts included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipStatus {
    /// Which.
    pub vip: VipId,
    /// How far a change of its pool is.
    pub phase: Phase,
    /// Flows known.
    pub flows: usize,
    /// Packets forwarded.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets by [`How`](crate::abi::How).
    pub hows: [u64; HOWS],
    /// Packets by [`Reason`](crate::Reason).
    pub reasons: [u64; REASONS],
    /// Its backends, those included that are no longer in the snapshot and still drain.
    pub backends: Vec<BackendStatus>,
}

/// How far a change of a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The tables are those of the snapshot.
    #[default]
    Steady,
    /// A change is wanted and waits for the one before it.
    Waiting,
    /// A change is announced: flows that it would move are recorded.
    Transition,
    /// A change is made: recorded flows are being pinned.
    Absorbing,
}

/// Of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Which.
    pub backend: BackendId,
    /// Its slot; `None`: it has none while it takes nothing.
    pub slot: Option<u16>,
    /// What it may be given.
    pub standing: Standing,
    /// Whether the snapshot has it.
    pub listed: bool,
    /// Whether its next hop is resolved.
    pub reachable: bool,
    /// Flows open.
    pub active: u32,
    /// Flows closing.
    pub inactive: u32,
    /// Packets forwarded.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Control {
    /// Everything that can be counted.
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
        let [mut packets, mut bytes] = [0; 2];
        for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
            let counted = counter.map_or([0; 2], |counter| cpu.backend(counter));
            packets += counted[0];
            bytes += counted[1];
        }
        let hop = self.hops.get(&backend.address);
        BackendStatus {
            backend,
            slot,
            standing: spec.map_or(Standing::Draining, BackendSpec::standing),
            listed: spec.is_some(),
            reachable: hop.is_some_and(|hop| hop.destination_mac.is_some()),
            active,
            inactive,
            packets,
            bytes,
        }
    }
}

fn add(sums: &mut [u64], counters: &[AtomicU64]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.load(Relaxed);
    }
}
