//! A VIP in the control side: its desired state, slots and rings, and the progress of a change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_core::scheduler::cycle_of_turns;
use equipoise_core::{Candidate, hash};

use super::status::Phase;
use crate::abi::{FlowKey, Forward, NO_SLOT, Pick};
use crate::access::Access;
use crate::digest::Digest;
use crate::quic::Quic;
use crate::ring::{Ring, Seat};
use crate::scheduler::FlowScheduler;
use crate::slots::{Holder, Slots};
use crate::snapshot::{
    BackendId, BackendSpec, OwnTimeouts, Protocol, Sources, Standing, VipId, VipSpec,
};

/// A VIP and its pool.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) id: VipId,
    pub(super) forward: Forward,
    pub(super) key: FlowKey,
    pub(super) access: Access,
    pub(super) timeouts: OwnTimeouts,
    /// Server ids of listed backends, and of others while they drain.
    pub(super) quic: Option<Arc<Quic>>,
    /// Whether packets carry the backend of the replaced ring.
    pub(super) second_chance: bool,
    pub(super) sources: Sources,
    pub(super) pick: Pick,
    /// `None` after a restart until the next snapshot, because the tables do not record it.
    pub(super) scheduler: Option<FlowScheduler>,
    /// Salt of flow digests; the same on every balancer of a fleet.
    pub(super) salt: u64,
    /// Backends as listed in the snapshot.
    pub(super) listed: Vec<BackendSpec>,
    pub(super) slots: Slots,
    pub(super) rings: Rings,
    pub(super) change: Change,
    /// Whether the pool has changed since the rings were built.
    pub(super) is_stale: bool,
}

/// The rings of a service.
#[derive(Clone, Debug, Default)]
pub(super) struct Rings {
    pub(super) current: Arc<Ring>,
    /// Set during a transition.
    pub(super) next: Option<Arc<Ring>>,
    /// Set while a transition is absorbed, if the ring is known.
    pub(super) before: Option<Arc<Ring>>,
    /// The order of turns.
    pub(super) turns: Arc<Ring>,
    /// With a second chance: answers of rings that were replaced. A VIP without turns.
    pub(super) replaced: Arc<Ring>,
}

impl Rings {
    /// Whether a ring contains this slot, so that it must not be given to another backend.
    pub(super) fn have(&self, slot: u16) -> bool {
        self.pick(slot) || self.replaced.entries().contains(&slot)
    }

    /// Whether a ring may pick this slot.
    pub(super) fn pick(&self, slot: u16) -> bool {
        let Rings { current, next, before, turns, .. } = self;
        [Some(current), next.as_ref(), before.as_ref(), Some(turns)]
            .into_iter()
            .flatten()
            .any(|ring| ring.entries().contains(&slot))
    }

    /// Returns the rings to publish. Empty ones need no space.
    pub(super) fn published(&self) -> impl Iterator<Item = &Arc<Ring>> {
        [Some(&self.current), self.next.as_ref(), Some(&self.turns), Some(&self.replaced)]
            .into_iter()
            .flatten()
            .filter(|ring| !ring.entries().is_empty())
    }

    /// The same, to be replaced by equal ones.
    pub(super) fn published_mut(&mut self) -> impl Iterator<Item = &mut Arc<Ring>> {
        let Rings { current, next, turns, replaced, .. } = self;
        [Some(current), next.as_mut(), Some(turns), Some(replaced)]
            .into_iter()
            .flatten()
            .filter(|ring| !ring.entries().is_empty())
    }
}

/// Progress of a change of the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Change {
    #[default]
    None,
    /// Announced; made at this time.
    Transition(Instant),
    /// Made at this time. Until a grace period after its publication, the program may still record
    /// flows.
    Absorbing(Instant),
}

/// Weight in rings of schedulers that ignore weights.
const EQUAL: u32 = 1;

fn seat((slot, holder): (u16, &Holder)) -> Seat {
    Seat { slot, identity: identity(&holder.backend), weight: holder.weight }
}

/// Identifies a backend, identically on every balancer of a fleet.
fn identity(backend: &BackendId) -> u64 {
    hash::identity(SocketAddr::new(backend.address, backend.port.unwrap_or(0)))
}

impl Service {
    /// Makes a service without backends.
    pub(super) fn new(spec: &VipSpec, salt: u64) -> Service {
        let (scheduler, pick) = (Some(spec.scheduler), spec.scheduler.pick());
        let (id, forward, key) = (spec.id(), spec.forward, spec.key);
        Service { scheduler, ..Service::unlisted(id, forward, key, pick, salt) }
    }

    /// Makes a service without backends and without a snapshot.
    pub(super) fn unlisted(
        id: VipId,
        forward: Forward,
        key: FlowKey,
        pick: Pick,
        salt: u64,
    ) -> Service {
        Service {
            id,
            forward,
            key,
            access: Access::default(),
            timeouts: OwnTimeouts::default(),
            quic: None,
            second_chance: false,
            sources: Sources::default(),
            pick,
            scheduler: None,
            salt,
            listed: Vec::new(),
            slots: Slots::default(),
            rings: Rings::default(),
            change: Change::None,
            is_stale: true,
        }
    }

    /// Sets the connection ids. Backends that have left keep theirs while they have a slot.
    pub(super) fn set_quic(&mut self, quic: Option<&Arc<Quic>>) {
        let next = quic.map(|quic| match &self.quic {
            Some(before) if !Arc::ptr_eq(before, quic) => {
                let mut next = Quic::clone(quic);
                next.keep_from(before, |backend| self.slots.of(backend).is_some());
                Arc::new(next)
            }
            _ => Arc::clone(quic),
        });
        self.quic = next;
    }

    /// Whether every flow must be pinned, because a packet of a known flow may be mistaken for the
    /// first of a new one.
    pub(super) fn pins_all(&self) -> bool {
        self.pick != Pick::Ring
            && (self.id.protocol == Protocol::Udp || self.key != FlowKey::FiveTuple)
    }

    /// Whether the current rings send a flow to this slot if no record exists.
    #[inline(always)]
    pub(super) fn rings_agree(&self, digest: Digest, slot: u16) -> bool {
        let live = |slot| self.slots.live(slot);
        let agrees = |ring: &Ring| ring.pick(digest, live) == Some(slot);
        !self.pins_all()
            && agrees(&self.rings.current)
            && self.rings.next.as_ref().is_none_or(|next| agrees(next))
    }

    /// Returns the slot of a flow without a record, when no change is in progress.
    pub(super) fn ring_slot(&self, digest: Digest) -> Option<u16> {
        self.rings.current.pick(digest, |slot| self.slots.live(slot))
    }

    /// Whether a flow recorded at `slot` used the ring that was just replaced.
    pub(super) fn went_by_old_ring(&self, digest: Digest, slot: u16) -> bool {
        let live = |slot| self.slots.live(slot);
        let Change::Absorbing(_) = self.change else { return false };
        let before = self.rings.before.as_ref();
        before.is_none_or(|before| before.pick(digest, live) == Some(slot))
            && self.slots.live(slot)
            && self.ring_slot(digest) != Some(slot)
    }

    /// Sets the pool from `spec`. `number` returns the counter number of a backend; there are at
    /// most `len_max` slots. Returns whether each backend that may receive packets has a slot.
    pub(super) fn list(
        &mut self,
        spec: &[BackendSpec],
        len_max: usize,
        quarantine: Duration,
        now: Instant,
        mut number: impl FnMut(&BackendId) -> Option<u16>,
    ) -> bool {
        self.listed = spec.to_vec();
        self.is_stale = true;
        let mut all = true;
        let held: Vec<u16> = self.slots.held().map(|(slot, _)| slot).collect();
        for slot in held {
            let Some(holder) = self.slots.holder_mut(slot) else { continue };
            match spec.iter().find(|backend| backend.id() == holder.backend) {
                None => (holder.listed, holder.standing) = (false, Standing::Draining),
                Some(backend) if backend.standing() == Standing::Gone => {
                    self.slots.vacate(slot, now);
                }
                Some(backend) => {
                    (holder.listed, holder.standing) = (true, backend.standing());
                    (holder.weight, holder.idle_since) = (u32::from(backend.weight.get()), None);
                }
            }
        }
        for backend in spec.iter().filter(|backend| backend.standing() != Standing::Gone) {
            let id = backend.id();
            if self.slots.of(&id).is_some() {
                continue;
            }
            let seated = number(&id).and_then(|number| {
                let (weight, standing) = (u32::from(backend.weight.get()), backend.standing());
                let (listed, idle_since) = (true, None);
                let holder = Holder { backend: id, number, weight, standing, listed, idle_since };
                let rings = &self.rings;
                self.slots.take(holder, len_max, quarantine, now, |slot| rings.have(slot))
            });
            all &= seated.is_some();
        }
        all
    }

    /// Returns the backends that take new flows.
    fn seats(&self, weighted: bool) -> Vec<Seat> {
        let eligible = self.slots.held().filter(|(_, it)| it.standing == Standing::Eligible);
        let equal = |it: Seat| Seat { weight: EQUAL, ..it };
        eligible.map(seat).map(|it| if weighted { it } else { equal(it) }).collect()
    }

    /// Returns the backends that take new flows, in the order of the snapshot.
    fn seats_as_listed(&self) -> Vec<Seat> {
        let place = |id: &BackendId| self.listed.iter().position(|it| it.id() == *id);
        let mut seats: Vec<_> = self
            .seats(true)
            .into_iter()
            .map(|seat| (self.slots.holder(seat.slot).and_then(|it| place(&it.backend)), seat))
            .collect();
        seats.sort_by_key(|(place, _)| *place);
        seats.into_iter().map(|(_, seat)| seat).collect()
    }

    /// Builds the ring and the turns of the current pool. `seed` is that of the fleet's rings.
    pub(super) fn wanted(&self, entries_max: usize, seed: u64) -> (Ring, Ring) {
        let seats = self.seats(self.scheduler.unwrap_or_default().is_weighted());
        // Depends on members and weights only, never on the previous ring, because balancers of a
        // fleet have different histories.
        let ring = Ring::maglev(&seats, entries_max, seed);
        let turns = match self.pick {
            Pick::Sequence => {
                let candidate = |it: &Seat| Candidate { identity: it.identity, weight: it.weight };
                let candidates: Vec<_> = seats.iter().map(candidate).collect();
                let cycle = cycle_of_turns(&candidates, entries_max);
                Ring::of(cycle.into_iter().map(|seat| seats[seat].slot).collect())
            }
            Pick::SourceBucket => Ring::source_buckets(&self.seats_as_listed()),
            _ => Ring::default(),
        };
        (ring, turns)
    }

    /// Notes the answers of the ring that the current one has replaced.
    pub(super) fn note_replaced(&mut self, old: &Ring) {
        if self.second_chance {
            let live = |slot| self.slots.live(slot);
            let rings = &self.rings;
            let replaced = Ring::replaced(old, &rings.current, &rings.replaced, live);
            self.rings.replaced = Arc::new(replaced);
        }
    }

    /// Without knowledge of earlier rings: notes the answers of a ring with the backends that
    /// drain. It is the one before they drained, if nothing else has changed.
    pub(super) fn note_drained(&mut self, entries_max: usize, seed: u64) {
        let has_flows = |it: &Holder| it.listed && it.weight > 0;
        let seats: Vec<Seat> =
            self.slots.held().filter(|(_, it)| has_flows(it)).map(seat).collect();
        self.note_replaced(&Ring::maglev(&seats, entries_max, seed));
    }

    /// Forgets replaced answers whose backends receive no more packets.
    pub(super) fn forget_gone(&mut self) {
        let is_gone = |slot: &u16| *slot != NO_SLOT && !self.slots.live(*slot);
        if self.rings.replaced.entries().iter().any(is_gone) {
            let current = Arc::clone(&self.rings.current);
            self.note_replaced(&current);
        }
    }

    /// Whether the backend of a slot gets new flows.
    pub(super) fn takes_new(&self, slot: u16) -> bool {
        self.slots.holder(slot).is_some_and(|holder| holder.standing == Standing::Eligible)
    }

    pub(super) fn is_absorbing(&self) -> bool {
        matches!(self.change, Change::Absorbing(_))
    }

    pub(super) fn phase(&self) -> Phase {
        match self.change {
            Change::Transition(_) => Phase::Transition,
            Change::Absorbing(_) => Phase::Absorbing,
            Change::None if self.is_stale => Phase::Waiting,
            Change::None => Phase::Steady,
        }
    }
}
