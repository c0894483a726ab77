//! Which slot a flow's packet goes to: the program's `lookup.h`.

use super::state::{Put, State};
use super::tables::Tables;
use crate::abi::{
    BACKEND_ELIGIBLE, BACKEND_LIVE, Backend, How, Pick, SERVICE_PENDING, SERVICE_PENDING_FULL,
    SERVICE_SECOND_CHANCE, SERVICE_TRANSITION, Service,
};
use crate::digest::Digest;
use crate::packet::AddressBytes;
use crate::reason::Reason;

/// Positions of a ring that are tried.
const RING_TRIES: u32 = 8;
/// Turns that are tried.
const TURN_TRIES: u32 = 8;
/// LVS: an active connection weighs as much as this many inactive ones.
const ACTIVE_WEIGHT: u64 = 256;

/// Properties of a packet that affect the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occasion {
    /// TCP with SYN and without ACK.
    pub(super) opening: bool,
    pub(super) tcp: bool,
    /// An ICMP error about the flow: it does not make the flow, so nothing is recorded.
    pub(super) error: bool,
}

/// The choice for one packet.
pub(super) struct Choice<'a> {
    pub(super) tables: &'a Tables<'a>,
    pub(super) state: &'a State<'a>,
    pub(super) service: &'a Service,
    pub(super) digest: Digest,
    /// The client's address.
    pub(super) source: &'a AddressBytes,
    pub(super) occasion: Occasion,
}

type Picked = (u16, How);

impl Choice<'_> {
    /// The slot; `None`: no backend takes the flow.
    pub(super) fn make(&self) -> Option<Picked> {
        self.recorded().or_else(|| self.by_turn()).or_else(|| self.by_ring())
    }

    fn is_live(&self, slot: u16) -> bool {
        self.tables.is_live(self.service, slot)
    }

    fn has(&self, flag: u8) -> bool {
        self.service.flags & flag != 0
    }

    fn recorded(&self) -> Option<Picked> {
        let pending =
            self.has(SERVICE_PENDING).then(|| self.state.pending_find(self.digest)).flatten();
        if let Some(slot) = pending.filter(|slot| self.is_live(*slot)) {
            return Some((slot, How::Pending));
        }
        if self.has(SERVICE_SECOND_CHANCE) && self.occasion.opening {
            return None;
        }
        let pinned = self.tables.pinned(self.service, self.digest);
        pinned.filter(|slot| self.is_live(*slot)).map(|slot| (slot, How::Pin))
    }

    fn by_turn(&self) -> Option<Picked> {
        // A flow of UDP has no beginning but its first packet.
        let fresh = self.occasion.opening || !self.occasion.tcp;
        if self.service.pick == Pick::Ring as u8 || !fresh || self.occasion.error {
            return None;
        }
        if self.has(SERVICE_PENDING_FULL) || !self.state.pending_has_room(self.service.number) {
            self.note_pending_full();
            return None;
        }
        let slot = self.turn()?;
        let recorded = self.record(slot)?;
        if recorded == Put::New
            && let Some((backend, _)) = self.tables.backend(self.service, slot)
        {
            self.state.add_opening(backend);
        }
        let slot = recorded.slot(slot);
        self.is_live(slot).then_some((slot, How::Turn))
    }

    fn by_ring(&self) -> Option<Picked> {
        let now = self.ring_pick(self.service.ring, self.service.ring_len);
        if self.has(SERVICE_TRANSITION)
            && let Some((next, _)) =
                self.ring_pick(self.service.ring_next, self.service.ring_next_len)
            && now.is_none_or(|(slot, _)| slot != next)
        {
            let now = now.map_or(next, |(slot, _)| slot);
            return Some((self.in_transition(now, next), How::Ring));
        }
        now
    }

    /// A flow that moves with the ring: a new one goes where it will stay, one under way stays
    /// where it is.
    fn in_transition(&self, now: u16, next: u16) -> u16 {
        if self.occasion.error {
            return now;
        }
        let wanted = if self.occasion.opening { next } else { now };
        if !self.state.pending_has_room(self.service.number) {
            self.note_pending_full();
            return now;
        }
        let recorded = self.record(wanted).map(|recorded| recorded.slot(wanted));
        recorded.filter(|slot| self.is_live(*slot)).unwrap_or(now)
    }

    fn record(&self, slot: u16) -> Option<Put> {
        match self.state.pending_put(self.service.number, self.digest, slot) {
            Put::Full => {
                self.note_pending_full();
                None
            }
            put => Some(put),
        }
    }

    fn note_pending_full(&self) {
        self.state.count(Some(self.service.number), Reason::PendingFull);
    }

    fn ring_pick(&self, ring: u32, len: u32) -> Option<Picked> {
        if len == 0 {
            return None;
        }
        let mut mixed = self.digest.0;
        for attempt in 0..RING_TRIES {
            let at = ((mixed >> 32) * u64::from(len)) >> 32;
            if let Some(slot) = self.tables.ring(ring, at as u32).filter(|slot| self.is_live(*slot))
            {
                return Some((slot, if attempt == 0 { How::Ring } else { How::Fallback }));
            }
            mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        None
    }

    fn turn(&self) -> Option<u16> {
        const LEAST: u8 = Pick::Least as u8;
        const LEAST_WEIGHTED: u8 = Pick::LeastWeighted as u8;
        const EXPECTED_DELAY: u8 = Pick::ExpectedDelay as u8;
        const NEVER_QUEUE: u8 = Pick::NeverQueue as u8;
        const SOURCE_BUCKET: u8 = Pick::SourceBucket as u8;
        match self.service.pick {
            LEAST => self.least(|_| 1, overhead),
            LEAST_WEIGHTED => self.least(weight, overhead),
            EXPECTED_DELAY => self.shortest_delay(),
            NEVER_QUEUE => self.first_idle().or_else(|| self.shortest_delay()),
            SOURCE_BUCKET => self.in_sequence(source_bucket(self.source)),
            _ => self.in_sequence(self.state.turn(self.service.cursor)),
        }
    }

    /// The entry of the sequence at `turn`, or the next one that is live.
    fn in_sequence(&self, turn: u32) -> Option<u16> {
        let Service { sequence, sequence_len: len, .. } = *self.service;
        (0..TURN_TRIES)
            .filter_map(|ahead| turn.wrapping_add(ahead).checked_rem(len))
            .filter_map(|at| self.tables.ring(sequence, at))
            .find(|slot| self.is_live(*slot))
    }

    /// Active connections and the new one, for its weight.
    ///
    /// # Source
    /// Linux, net/netfilter/ipvs/ip_vs_sed.c.
    fn shortest_delay(&self) -> Option<u16> {
        self.least(weight, |[active, _]| active + 1)
    }

    /// # Source
    /// Linux, net/netfilter/ipvs/ip_vs_nq.c.
    fn first_idle(&self) -> Option<u16> {
        let is_idle = |slot: &u16| {
            let backend = self.tables.backend(self.service, *slot);
            backend.is_some_and(|(index, backend)| {
                takes_new(&backend) && backend.weight > 0 && self.state.load(index)[0] == 0
            })
        };
        (0..self.service.slots as u16).find(is_idle)
    }

    /// The least load for its weight; of several the first.
    ///
    /// # Source
    /// Linux, net/netfilter/ipvs/ip_vs_lc.c, ip_vs_wlc.c.
    fn least(
        &self,
        weight: impl Fn(&Backend) -> u64,
        load_of: impl Fn([u64; 2]) -> u64,
    ) -> Option<u16> {
        let mut best: Option<(u16, u64, u64)> = None;
        for slot in 0..self.service.slots as u16 {
            let Some((index, backend)) = self.tables.backend(self.service, slot) else { continue };
            let weight = weight(&backend);
            if !takes_new(&backend) || weight == 0 {
                continue;
            }
            let load = load_of(self.state.load(index).map(u64::from));
            let better = best
                .is_none_or(|(_, least, of)| least.wrapping_mul(weight) > load.wrapping_mul(of));
            if better {
                best = Some((slot, load, weight));
            }
        }
        best.map(|(slot, ..)| slot)
    }
}

fn takes_new(backend: &Backend) -> bool {
    const TAKES_NEW: u8 = BACKEND_LIVE | BACKEND_ELIGIBLE;
    backend.flags & TAKES_NEW == TAKES_NEW
}

fn weight(backend: &Backend) -> u64 {
    u64::from(backend.weight)
}

/// # Source
/// Linux, net/netfilter/ipvs/ip_vs_lc.c, `ip_vs_dest_conn_overhead`.
fn overhead([active, inactive]: [u64; 2]) -> u64 {
    active * ACTIVE_WEIGHT + inactive
}

/// The bucket of a client.
///
/// # Source
/// Linux, net/netfilter/ipvs/ip_vs_sh.c, `ip_vs_sh_hashkey`, without ports; `hash_32` of
/// include/linux/hash.h.
fn source_bucket(source: &AddressBytes) -> u32 {
    const GOLDEN_RATIO_32: u32 = 0x61c8_8647;
    let (words, _) = source.as_chunks::<4>();
    let folded = words.iter().fold(0, |folded, word| folded ^ u32::from_be_bytes(*word));
    folded.wrapping_mul(GOLDEN_RATIO_32) >> 24
}

impl Put {
    fn slot(self, new: u16) -> u16 {
        match self {
            Put::Old(slot) => slot,
            Put::New | Put::Full => new,
        }
    }
}
