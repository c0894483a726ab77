//! Load that nodes of a name were assigned, and the selection of the nodes with the largest
//! deficit.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Source, UNIT};
use crate::Mode;
use crate::spread::Group;

/// Marks an empty slot, or an entry without an answer.
pub(super) const NONE: u32 = u32::MAX;

/// Horizon of the account of rotating sources, in TTLs of all load.
const ROTATION_TTLS: f64 = 16.0;

/// Account of one name and address family.
#[derive(Debug)]
pub(super) struct Account {
    /// By entry: the last answer, a packed [`Given`].
    pub(super) given: Box<[AtomicU32]>,
    /// By entry: time of the last answer, in 10 µs.
    pub(super) since: Box<[AtomicU64]>,
    /// By place of node: load assigned to it by sources that do not rotate.
    pub(super) loads: Box<[AtomicI64]>,
    /// By place of node: load that it served of rotating sources, in the load of a whole TTL.
    pub(super) served: Box<[AtomicI64]>,
}

/// Nodes of the last answer to a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// Both are equal if the answer has one node.
    pub(super) places: [usize; 2],
    pub(super) rotates: bool,
}

impl Given {
    /// Flag in [`Given::packed`]: the highest bit.
    const ROTATES: u32 = 1 << 31;

    pub(super) fn packed(self) -> u32 {
        let [first, second] = self.places;
        let places = (first as u32) << 16 | second as u32;
        if self.rotates { places | Given::ROTATES } else { places }
    }

    pub(super) fn unpacked(given: u32) -> Option<Given> {
        let places = [(given >> 16 & 0x7fff) as usize, (given & 0xffff) as usize];
        (given != NONE).then_some(Given { places, rotates: given & Given::ROTATES != 0 })
    }

    /// Number of halves of the source's load that a place has: 0, 1 or 2.
    pub(super) fn halves(self, place: usize) -> i64 {
        self.places.iter().filter(|given| **given == place).count() as i64
    }
}

impl Account {
    /// Records the load that places served of a rotating source. Older load decays.
    pub(super) fn serve(&self, last: Given, load: i64) {
        let had: i64 = self.served.iter().map(|served| served.load(Relaxed)).sum();
        let most = ROTATION_TTLS * UNIT;
        let kept = if had as f64 > most { most / had as f64 } else { 1.0 };
        for (place, served) in self.served.iter().enumerate() {
            let now = served.load(Relaxed) as f64 * kept;
            served.store(now as i64 + last.halves(place) * (load / 2), Relaxed);
        }
    }

    /// Replaces the last answer of entry `index`.
    pub(super) fn give(&self, index: usize, given: Given, load: i64) {
        let replaced = Given::unpacked(self.given[index].swap(given.packed(), Relaxed));
        let counted = |given: &Given| !given.rotates;
        for place in replaced.filter(counted).into_iter().flat_map(|last| last.places) {
            self.loads[place].fetch_sub(load / 2, Relaxed);
        }
        for place in Some(given).filter(counted).into_iter().flat_map(|given| given.places) {
            self.loads[place].fetch_add(load / 2, Relaxed);
        }
    }
}

/// Selects the two members with the largest deficits (or one member twice) after adding `load`.
pub(super) fn furthest_behind(
    group: &Group,
    load: i64,
    source: Source,
    has: impl Fn(usize) -> i64,
) -> [usize; 2] {
    // Ties are broken in an order that depends on the source.
    let (count, from) = (group.members.len(), source.hash() as usize);
    let has = |member: usize| has(group.members[member].place);
    let total = (0..count).map(has).sum::<i64>() + load;
    let furthest = |without: Option<usize>| {
        let behind =
            |member: &usize| group.members[*member].share * total as f64 - has(*member) as f64;
        (0..count)
            .map(|member| (from % count + member) % count)
            .filter(|member| Some(*member) != without)
            .max_by(|a, b| behind(a).total_cmp(&behind(b)))
    };
    let first = furthest(None).unwrap_or(0);
    let second = match group.mode {
        Mode::Pair => {
            // One member fills both places only if shares cannot be kept otherwise, as in a draw by
            // shares.
            let share = group.members[first].share;
            let twice = share > 0.5 && has(first) + load <= (share * total as f64) as i64;
            if twice { first } else { furthest(Some(first)).unwrap_or(first) }
        }
        _ => first,
    };
    [first, second]
}
