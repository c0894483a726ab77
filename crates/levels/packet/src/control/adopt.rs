//! Starts the control side, with empty memory or with the tables that an earlier process published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_core::Generation;
use equipoise_pog::KeyHash;

use super::apply::Numbers;
use super::flows::Flows;
use super::heavy::Weighing;
use super::output::Output;
use super::pending::Pending;
use super::pins::PinSet;
use super::registered::Registrations;
use super::seating::Begun;
use super::service::{Change, Rings, Service};
use super::{Clocks, Control, ControlError, Seeds, Settings, Totals};
use crate::abi::{
    BACKEND_ELIGIBLE, BACKEND_LIVE, Backend, DIRECTORY_REPLIES_ALL, FlowKey, Forward, Pick,
    SERVICE_PENDING, SERVICE_SECOND_CHANCE, SERVICE_TRANSITION, TRANSLATED_TICK_SHIFT,
};
use crate::directory::{Published, PublishedService, address_of};
use crate::ledger::Ledger;
use crate::limits::{Capacity, Limits};
use crate::memory::Memory;
use crate::registry::{Flow, Registry, Verdict};
use crate::slots::{Holder, Slots};
use crate::snapshot::{BackendId, OwnTimeouts, Standing, VipId};

impl Seeds {
    /// Returns the salt of a VIP's flow digests: flows of VIPs with equal rings are independent.
    pub(super) fn salt(&self, vip: &VipId) -> u64 {
        self.salts.hash(&vip.to_string()[..])
    }
}

impl Control {
    pub(super) fn adopt(
        memories: Vec<Memory>,
        capacity: Capacity,
        registry: Registry,
        ledger: Option<&Ledger>,
        settings: Settings,
        now: Instant,
    ) -> Result<Control, ControlError> {
        let limits = Limits::new(&capacity);
        let seeds = Seeds::of(settings.fleet_seed);
        let interval = registry.interval().load(Relaxed) as u32;
        let pins = PinSet::empty(capacity.pins as usize, settings.random_seed)
            .map_err(ControlError::Pins)?;
        let flows = Flows::new(registry, limits.services_max as usize, pins.room());
        let (output, published) = Output::open(&memories, &capacity, limits, &pins)?;
        let services = limits.services_max as usize;
        let pending = |it: &Memory| Pending::new(it.state.clone(), services, now);
        let pending = memories.iter().map(pending).collect();
        let clocks = Clocks {
            next_tick: now,
            interval_began: now,
            expired_at: now,
            // The time of another process's last publication is unknown.
            published_at: now,
            pinned_at: now,
        };
        let mut control = Control {
            memories,
            capacity,
            limits,
            settings,
            seeds,
            generation: Generation::default(),
            services: vec![None; services],
            numbers: Numbers::new(limits.backends_max),
            flows,
            pins,
            pending,
            output,
            hops: Default::default(),
            stations: Default::default(),
            registrations: Registrations::default(),
            noted: None,
            begun: Begun::default(),
            opening: Default::default(),
            clocks,
            totals: Totals::default(),
            interval,
            sweep_at: 0,
            is_dirty: true,
            rearranged: vec![false; services],
            slots_grew: false,
            is_mended: false,
            is_unseated: false,
            replies_all_since: None,
            unlogged: Vec::new(),
            weighing: Weighing::default(),
            leaving: BTreeMap::new(),
            ports_counted: None,
            events: Vec::new(),
            recorded: Vec::new(),
            fleet: None,
        };
        let translates_all = published
            .as_ref()
            .is_some_and(|published| published.head.flags & DIRECTORY_REPLIES_ALL != 0);
        match published {
            Some(published) => control.take_over(published, ledger, now)?,
            None => control.begin_anew(ledger),
        }
        control.share_room();
        control.remember_pins(ledger);
        control.begun.flows = control.flows.registry.len();
        control.begun.left_out = control.flows.registry.left_out();
        let is_unknown = control.begun.is_anew && control.begun.flows > 0;
        if is_unknown || translates_all {
            control.replies_all_since = Some(now);
        }
        Ok(control)
    }

    /// Starts with memory without a publication: the program ignores it until the first one.
    fn begin_anew(&mut self, ledger: Option<&Ledger>) {
        self.begun.is_anew = true;
        self.seat_known(ledger);
        self.renew_tags();
    }

    /// Continues with the published tables and the registry.
    fn take_over(
        &mut self,
        published: Published,
        ledger: Option<&Ledger>,
        now: Instant,
    ) -> Result<(), ControlError> {
        let digest = self.seeds.digest;
        if published.services.is_empty() && published.head.digest_k0 == 0 {
            // An earlier process set up the memory and published nothing.
            self.begin_anew(ledger);
            return Ok(());
        }
        if (published.head.digest_k0, published.head.digest_k1) != (digest.k0, digest.k1) {
            return Err(ControlError::Foreign { what: "another fleet seed" });
        }
        // Flows that were taken from the logs but did not reach the registry are reported again, or
        // all flows if the registry was lost.
        self.renew_tags();
        let sources = published.sources;
        for service in published.services {
            let number = usize::from(service.service.number);
            let taken =
                self.service_of(service, now).ok_or(ControlError::Foreign { what: "damaged" })?;
            self.services[number] = Some(taken);
        }
        let active = self.sources();
        self.leaving = sources.difference(&active).map(|address| (*address, None)).collect();
        self.is_dirty = false;
        self.take_over_flows()
    }

    fn service_of(&mut self, published: PublishedService, now: Instant) -> Option<Service> {
        let PublishedService {
            vip,
            service,
            backends,
            access,
            sources,
            ring,
            next,
            sequence,
            quic,
        } = published;
        let salt = self.seeds.salt(&vip);
        let is_between = service.flags & SERVICE_TRANSITION != 0;
        let pick = Pick::from_number(service.pick)?;
        let change = match service.flags {
            _ if is_between => Change::Transition(now + self.settings.transition),
            flags if flags & SERVICE_PENDING != 0 && pick == Pick::Ring => Change::Absorbing(now),
            _ => Change::None,
        };
        let second_chance = service.flags & SERVICE_SECOND_CHANCE != 0;
        let sequence = Arc::new(sequence);
        let (turns, replaced) = match second_chance {
            true => (Arc::default(), sequence),
            false => (sequence, Arc::default()),
        };
        let next = is_between.then(|| Arc::new(next));
        let rings = Rings { current: Arc::new(ring), next, before: None, turns, replaced };
        self.output.adopt_ring(service.ring, &rings.current);
        let sequence = if second_chance { &rings.replaced } else { &rings.turns };
        self.output.adopt_ring(service.sequence, sequence);
        if let Some(next) = &rings.next {
            self.output.adopt_ring(service.ring_next, next);
        }
        let holders = backends.iter().map(|backend| holder_of(backend, &mut self.numbers, vip));
        Some(Service {
            id: vip,
            forward: Forward::from_number(service.forward)?,
            key: FlowKey::from_numbers(service.key, service.key_bits)?,
            access,
            timeouts: timeouts_of(&service),
            quic: quic.map(Arc::new),
            second_chance,
            sources,
            pick,
            scheduler: None,
            salt,
            listed: Vec::new(),
            slots: Slots::adopted(holders.collect(), now),
            rings,
            change,
            is_stale: false,
        })
        .filter(|taken| taken.salt == service.salt)
    }

    /// Forgets flows of VIPs that are no longer published, and pins flows again that the rings
    /// would move.
    fn take_over_flows(&mut self) -> Result<(), ControlError> {
        let services = &self.services;
        let mut room = self.pins.room();
        let mut suspects = Vec::new();
        self.flows.sweep_all(|flow| {
            let service = services.get(usize::from(flow.service)).and_then(Option::as_ref);
            let Some(service) = service.filter(|service| service.slots.live(flow.slot)) else {
                return Verdict::Remove;
            };
            let agrees = flow.by_id || service.rings_agree(flow.digest, flow.slot);
            let mut pinned = flow.registered || !agrees;
            if pinned && room == 0 {
                suspects.push(flow.digest);
                pinned = false;
            }
            room -= usize::from(pinned);
            Verdict::Set(Flow { pinned, ..flow })
        });
        let (most, seed) = (self.capacity.pins as usize, self.settings.random_seed);
        self.pins = PinSet::build(&self.flows, most, seed).map_err(ControlError::Pins)?;
        self.pins.suspects = suspects;
        Ok(())
    }
}

/// Returns the published times, rounded up to ticks.
fn timeouts_of(service: &crate::abi::Service) -> OwnTimeouts {
    let time = |ticks: u16| Some(Duration::from_nanos(u64::from(ticks) << TRANSLATED_TICK_SHIFT));
    OwnTimeouts {
        open: time(service.translated_tcp),
        closing: time(service.translated_closing),
        udp: time(service.translated_udp),
    }
}

fn holder_of(backend: &Backend, numbers: &mut Numbers, vip: VipId) -> Option<Holder> {
    if backend.flags & BACKEND_LIVE == 0 {
        return None;
    }
    let address = address_of(&backend.address, backend.family)?;
    let port = Some(u16::from_be_bytes(backend.port)).filter(|port| *port != 0);
    let id = BackendId { address, port };
    numbers.adopt(backend.number, vip, id);
    let is_eligible = backend.flags & BACKEND_ELIGIBLE != 0;
    Some(Holder {
        backend: id,
        number: backend.number,
        weight: backend.weight,
        standing: if is_eligible { Standing::Eligible } else { Standing::Draining },
        // Assumed until the next snapshot.
        listed: true,
        idle_since: None,
    })
}
