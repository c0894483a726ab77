//! What nodes have been given of a name, and who is furthest behind.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Source, UNIT};
use crate::Mode;
use crate::spread::Group;

/// No entry, or no answer yet.
pub(super) const NONE: u32 = u32::MAX;

/// How many TTLs of all load the account of sources that go from node to node remembers.
const ROTATION_TTLS: f64 = 16.0;

/// Of one name and family.
#[derive(Debug)]
pub(super) struct Account {
    /// By entry: a [`Given`], packed.
    pub(super) given: Box<[AtomicU32]>,
    /// By entry: when that was, in 10 µs.
    pub(super) since: Box<[AtomicU64]>,
    /// By place of node: the load that it has been given of the other sources.
    pub(super) loads: Box<[AtomicI64]>,
    /// By place of node: what it has had of sources that go from node to node, in the load of a whole TTL.
    pub(super) served: Box<[AtomicI64]>,
}

/// Who the last answer has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// The same twice for an answer of one.
    pub(super) places: [usize; 2],
    pub(super) rotates: bool,
}

impl Given {
    /// Of [`Given::packed`]: the highest bit.
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

    /// Halves of the load that a place has.
    pub(super) fn halves(self, place: usize) -> i64 {
        self.places.iter().filter(|given| **given == place).count() as i64
    }
}

impl Account {
    /// Notes what places have had of a source that goes from node to node. What was served long ago counts less and less.
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

/// The two members, or one twice, that are furthest behind their shares when `load` comes to what places have.
pub(super) fn furthest_behind(
    group: &Group,
    load: i64,
    source: Source,
    has: impl Fn(usize) -> i64,
) -> [usize; 2] {
    // Whoever is as far behind as another comes in an order of the source's own.
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
            // Twice the same only where shares cannot be kept otherwise, as in a draw by shares.
            let share = group.members[first].share;
            let twice = share > 0.5 && has(first) + load <= (share * total as f64) as i64;
            if twice { first } else { furthest(Some(first)).unwrap_or(first) }
        }
        _ => first,
    };
    [first, second]
}
