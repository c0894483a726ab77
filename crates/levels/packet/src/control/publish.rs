//! Publishes the desired state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::openings::Openings;
use super::pins::Changed;
use super::service::{Change, Service};
use super::{Control, Tick, Timeouts};
use crate::abi::{
    BACKEND_ELIGIBLE, BACKEND_LIVE, BACKEND_REACHABLE, Backend, DIRECTORY_REPLIES_ALL, Directory,
    Pick, SERVICE_PENDING, SERVICE_QUIC, SERVICE_SECOND_CHANCE, SERVICE_TRANSITION,
    TRANSLATED_TICK_SHIFT,
};
use crate::digest::Digest;
use crate::directory::{ServiceRecord, address_bytes};
use crate::quic::ServerId;
use crate::ring::Ring;
use crate::snapshot::{BackendId, Standing};

/// Maximum number of checks of flows that were learned while the copy was written; each time there
/// are far fewer.
const LOOKS_MAX: usize = 4;
/// Maximum time that forgotten flows stay pinned if there is nothing else to publish.
const FORGOTTEN_WAIT: Duration = Duration::from_secs(2);
/// Minimum time between two batches of pins per known flow, because each batch checks all flows.
const BATCH_PER_FLOW: Duration = Duration::from_nanos(50);

impl Control {
    /// Publishes if there is an urgent change and the copy that no program reads is past its grace
    /// period.
    pub(super) fn publish_if_due(&mut self, now: Instant, tick: &mut Tick) {
        let flows = u32::try_from(self.flows.registry.len()).unwrap_or(u32::MAX);
        let batch = self.settings.batch.max(BATCH_PER_FLOW * flows);
        let since = now.saturating_duration_since(self.clocks.pinned_at);
        let is_due = self.is_dirty
            || !self.pins.suspects.is_empty() && since >= batch
            || !self.pins.forgotten.is_empty() && since >= batch.max(FORGOTTEN_WAIT);
        if is_due && now >= self.clocks.published_at + self.settings.grace {
            self.publish(now, tick);
        }
    }

    fn publish(&mut self, now: Instant, tick: &mut Tick) {
        let Some(is_new) = self.write_directory() else { return };
        let has_pins = !self.pins.suspects.is_empty() || !self.pins.forgotten.is_empty();
        // After an adoption nothing may have changed; but no record is deleted until flows have
        // been checked once.
        if !is_new && !has_pins && !self.is_rearranged() && self.is_mended {
            self.is_dirty = false;
            return;
        }
        let mut orphans = Vec::new();
        let mut changed = self.settle(&mut orphans);
        changed.add(self.mend(changed.image || self.slots_grew || !self.is_mended));
        let is_staged = self.stage(&mut changed, tick);
        self.pins.rest();
        self.is_mended = is_staged;
        self.count(changed, tick);
        self.unlogged.append(&mut orphans);
        if !is_staged {
            return;
        }
        tick.published = self.output.commit();
        (self.is_dirty, self.slots_grew) = (false, false);
        self.rearranged.fill(false);
        (self.clocks.published_at, self.clocks.pinned_at) = (now, now);
        self.totals.publications += 1;
    }

    /// Updates the pins for the current rings and slots.
    fn settle(&mut self, orphans: &mut Vec<Digest>) -> Changed {
        if !self.is_rearranged() {
            return self.pins.settle(&mut self.flows, &self.services);
        }
        let (services, rearranged) = (&self.services, &self.rearranged);
        let is_changed = |number: u16| rearranged.get(usize::from(number)).is_none_or(|it| *it);
        self.pins.settle_all(&mut self.flows, services, is_changed, orphans)
    }

    /// Pins flows that the image would falsely match. `is_new`: checks known flows as well as
    /// opening ones, because the image or the slots have changed since the last check.
    fn mend(&mut self, is_new: bool) -> Changed {
        let openings = Openings::of(&self.memories, self.interval);
        let pog = self.pins.controller.pog();
        if !is_new && openings.astray(pog, &self.flows, &self.services).is_empty() {
            return Changed::default();
        }
        self.pins.mend(&mut self.flows, &openings, &self.services)
    }

    /// Writes the copy that no program reads, then checks the flows that were learned in the
    /// meantime, until none needs a pin. Returns whether that succeeded.
    fn stage(&mut self, changed: &mut Changed, tick: &mut Tick) -> bool {
        for _ in 0..LOOKS_MAX {
            if self.output.stage(&mut self.pins).is_err() {
                return false;
            }
            self.drain(tick);
            let mut late = self.pins.settle(&mut self.flows, &self.services);
            late.add(self.mend(late.image));
            let is_staged = !late.image;
            changed.add(late);
            if is_staged {
                return true;
            }
        }
        self.output.stage(&mut self.pins).is_ok()
    }

    fn is_rearranged(&self) -> bool {
        self.rearranged.iter().any(|&it| it)
    }

    fn count(&mut self, changed: Changed, tick: &mut Tick) {
        tick.moved += changed.moved;
        tick.pins_full += changed.full;
        self.totals.moved += changed.moved as u64;
        self.totals.pins_full += changed.full as u64;
    }

    /// Writes the directory. Returns whether it differs from the published one; `None` if a part
    /// does not fit, which [`Self::apply`] and [`Self::advance`] prevent.
    fn write_directory(&mut self) -> Option<bool> {
        let rings = self.services.iter_mut().flatten().flat_map(|it| it.rings.published_mut());
        self.output.place(&mut rings.collect::<Vec<_>>())?;
        let records: Vec<ServiceRecord> = (0..)
            .zip(&self.services)
            .filter_map(|(number, service)| Some(self.record(number, service.as_ref()?)))
            .collect();
        let (head, leaving) = (self.head(), self.leaving.keys().copied().collect());
        let written = self.output.write(head, &records, &leaving, &self.stations);
        if written.is_ok() || leaving.is_empty() {
            return written.ok();
        }
        // No place in the table of VIPs, which has room for those of every snapshot.
        self.leaving.clear();
        self.output.write(head, &records, &BTreeSet::new(), &self.stations).ok()
    }

    /// Restricts translation to replies of flows that clients of VIPs opened, after every earlier
    /// flow has sent a packet or been forgotten.
    pub(super) fn end_replies_all(&mut self, now: Instant) {
        let longest = self.services.iter().flatten().map(|it| self.timeouts_of(it).longest()).max();
        let longest = longest.unwrap_or_default().max(self.settings.timeouts.longest());
        if self.replies_all_since.is_some_and(|since| now >= since + longest) {
            self.replies_all_since = None;
            self.is_dirty = true;
        }
    }

    pub(super) fn head(&self) -> Directory {
        let settings = &self.settings;
        let longest = |of: fn(&Timeouts) -> Duration| {
            let all = self.services.iter().flatten().map(|it| of(&self.timeouts_of(it)));
            ticks(all.max().unwrap_or_default())
        };
        let (source4, mask4) = settings.tunnel_source4;
        Directory {
            digest_k0: self.seeds.digest.k0,
            digest_k1: self.seeds.digest.k1,
            vip_seed: self.seeds.vip,
            tunnel_source4: (source4 & !mask4).octets(),
            tunnel_source4_mask: mask4.octets(),
            tunnel_source6: settings.tunnel_source6.octets(),
            gue_port: settings.gue_port.to_be_bytes(),
            echo_per_second: settings.echo_per_second,
            too_big_per_second: settings.too_big_per_second,
            flags: if self.replies_all_since.is_some() { DIRECTORY_REPLIES_ALL } else { 0 },
            translated_tcp: longest(|it| it.open),
            translated_closing: longest(|it| it.closing),
            translated_udp: longest(|it| it.udp),
            ..Directory::default()
        }
    }

    /// Returns the times until idle flows of a service are forgotten.
    pub(super) fn timeouts_of(&self, service: &Service) -> Timeouts {
        self.settings.timeouts.with(&service.timeouts)
    }

    fn record(&self, number: u16, service: &Service) -> ServiceRecord {
        let place =
            |ring: &Arc<Ring>| (self.output.index(ring).unwrap_or(0), ring.entries().len() as u32);
        let (ring, ring_len) = place(&service.rings.current);
        let next = service.rings.next.as_ref().unwrap_or(&service.rings.current);
        let (ring_next, ring_next_len) = place(next);
        let rings = &service.rings;
        let sequence = if service.second_chance { &rings.replaced } else { &rings.turns };
        let (sequence, sequence_len) = place(sequence);
        let second_chance = if service.second_chance { SERVICE_SECOND_CHANCE } else { 0 };
        let flags = match service.change {
            Change::Transition(_) => SERVICE_TRANSITION | SERVICE_PENDING,
            Change::Absorbing(_) => SERVICE_PENDING,
            Change::None if service.pick != Pick::Ring => SERVICE_PENDING,
            Change::None => 0,
        };
        let flags = flags | if service.quic.is_some() { SERVICE_QUIC } else { 0 };
        let timeouts = self.timeouts_of(service);
        let record = crate::abi::Service {
            salt: service.salt,
            ring,
            ring_len,
            ring_next,
            ring_next_len,
            sequence,
            sequence_len,
            cursor: number,
            number,
            forward: service.forward as u8,
            key: service.key.number(),
            key_bits: service.key.bits(),
            pick: service.pick as u8,
            flags: flags | second_chance,
            translated_tcp: ticks(timeouts.open),
            translated_closing: ticks(timeouts.closing),
            translated_udp: ticks(timeouts.udp),
            ..Default::default()
        };
        let backends = (0..service.slots.len()).map(|slot| self.backend(service, slot as u16));
        ServiceRecord {
            vip: service.id,
            service: record,
            backends: backends.collect(),
            access: service.access.clone(),
            quic: service.quic.as_ref().map_or_else(Vec::new, |quic| quic.configs.clone()),
            servers: servers(service),
            sources: service.sources.clone(),
        }
    }

    fn backend(&self, service: &Service, slot: u16) -> Backend {
        let Some(holder) = service.slots.holder(slot) else { return Backend::default() };
        let (address, family) = address_bytes(holder.backend.address);
        let mut backend = Backend {
            address,
            family,
            port: holder.backend.port.unwrap_or(0).to_be_bytes(),
            flags: BACKEND_LIVE,
            number: holder.number,
            weight: holder.weight,
            ..Backend::default()
        };
        if holder.standing == Standing::Eligible {
            backend.flags |= BACKEND_ELIGIBLE;
        }
        if let Some(hop) = self.hops.get(&holder.backend.address) {
            (backend.ifindex, backend.mtu) = (hop.ifindex, hop.mtu);
            backend.source_mac = hop.source_mac;
            if let Some(mac) = hop.destination_mac {
                backend.destination_mac = mac;
                backend.flags |= BACKEND_REACHABLE;
            }
        }
        backend
    }
}

/// Returns the server ids of backends with a slot.
fn servers(service: &Service) -> Vec<(u8, ServerId, u16)> {
    let ids = service.quic.iter().flat_map(|quic| &quic.servers);
    let seated = |((rotation, backend), id): (&(u8, BackendId), &ServerId)| {
        Some((*rotation, *id, service.slots.of(backend)?))
    };
    ids.filter_map(seated).collect()
}

/// Converts to ticks of the table of translated flows, rounded up. A day, the longest timeout, is
/// 40,234.
pub(super) fn ticks(time: Duration) -> u16 {
    let ticks = time.as_nanos().div_ceil(1 << TRANSLATED_TICK_SHIFT);
    u16::try_from(ticks).unwrap_or(u16::MAX)
}
