//! Registered pins that all balancers of a fleet have: the last change of each flow wins.
//!
//! A change has a number above all that its balancer has seen (Lamport, CACM 1978). Of two changes
//! with one number, that to the higher backend wins. A removal is kept as such, so that a balancer
//! that was away does not bring the pin back.

use std::collections::BTreeMap;

use super::super::Control;
use super::PinPart;
use crate::control::FlowId;
use crate::snapshot::{BackendId, VipId};

/// Largest number of removals that are kept. If more pins are removed while a balancer is away, it
/// may bring the oldest back.
const REMOVED_MAX: usize = 1 << 14;

type Key = (VipId, FlowId);

/// The last change of each flow.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedPins {
    by_flow: BTreeMap<Key, SharedPin>,
    /// Flows by the number of their last change here.
    by_change: BTreeMap<u64, Key>,
    changes: u64,
    /// Highest version seen.
    clock: u64,
    removed: usize,
}

/// The last change of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedPin {
    pub(super) backend: Option<BackendId>,
    pub(super) version: u64,
    change: u64,
}

impl SharedPins {
    /// Returns the number of changes here.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of the last change here.
    pub(super) fn last_change(&self) -> u64 {
        self.by_change.last_key_value().map_or(0, |(change, _)| *change)
    }

    /// Returns the flows that changed after `change`, in the order of their last changes.
    pub(super) fn after(&self, change: u64) -> impl Iterator<Item = (u64, Key, SharedPin)> {
        self.by_change.range(change + 1..).map(|(change, key)| (*change, *key, self.by_flow[key]))
    }

    /// Changes the pin of a flow.
    pub(super) fn set(&mut self, key: Key, backend: Option<BackendId>, version: u64) {
        self.changes += 1;
        self.clock = self.clock.max(version);
        let change = self.changes;
        self.by_change.insert(change, key);
        self.removed += usize::from(backend.is_none());
        if let Some(before) = self.by_flow.insert(key, SharedPin { backend, version, change }) {
            self.by_change.remove(&before.change);
            self.removed -= usize::from(before.backend.is_none());
        }
        if self.removed > 2 * REMOVED_MAX {
            self.drop_removals();
        }
    }

    fn drop_removals(&mut self) {
        let is_removed = |key: &Key| self.by_flow[key].backend.is_none();
        let removed: Vec<(u64, Key)> = self
            .by_change
            .iter()
            .filter(|(_, key)| is_removed(key))
            .map(|(change, key)| (*change, *key))
            .collect();
        for (change, key) in &removed[..removed.len().saturating_sub(REMOVED_MAX)] {
            self.by_change.remove(change);
            self.by_flow.remove(key);
            self.removed -= 1;
        }
    }
}

impl Control {
    /// Records that an operator or application pinned a flow here, or unpinned it.
    pub(in crate::control) fn share_pin(&mut self, key: Key, backend: Option<BackendId>) {
        if let Some(fleet) = &mut self.fleet {
            let version = fleet.pins.clock.saturating_add(1);
            fleet.pins.set(key, backend, version);
        }
    }

    /// Takes in a pin of a peer, if it is newer than the own one. Returns `false` if there is no
    /// room for it.
    pub(super) fn take_in_pin(&mut self, pin: &PinPart) -> bool {
        let (vip, flow) = (pin.vip.normal(), pin.flow);
        let room = self.pins.room() + 2 * REMOVED_MAX;
        let Some(fleet) = &mut self.fleet else { return true };
        // No fleet makes so many changes: such a version would stop all later ones.
        if pin.version > fleet.pins.clock.saturating_add(1 << 32) {
            return true;
        }
        let mine = fleet.pins.by_flow.get(&(vip, flow));
        if mine.is_some_and(|mine| (mine.version, mine.backend) >= (pin.version, pin.backend)) {
            return true;
        }
        if mine.is_none() && fleet.pins.by_flow.len() >= room {
            return false;
        }
        fleet.pins.set((vip, flow), pin.backend, pin.version);
        match pin.backend {
            Some(backend) => self.adopt_pin(vip, flow, backend),
            None => {
                // It may never have been here.
                let _ = self.release(&vip, &flow);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        ("192.0.2.1:80/tcp".parse().unwrap(), FlowId::SourceAddress(number.to_be_bytes().into()))
    }

    #[test]
    fn each_flow_has_its_last_change_alone() {
        let mut pins = SharedPins::default();
        let backend = Some(BackendId { address: [10, 0, 0, 1].into(), port: None });
        pins.set(key(1), backend, 1);
        pins.set(key(2), backend, 2);
        pins.set(key(1), None, 3);
        let after = |pins: &SharedPins, change| {
            let found = pins.after(change).map(|(_, key, pin)| (key, pin.backend, pin.version));
            found.collect::<Vec<_>>()
        };
        assert_eq!(after(&pins, 0), [(key(2), backend, 2), (key(1), None, 3)]);
        assert_eq!(after(&pins, 2), [(key(1), None, 3)]);
        assert_eq!((after(&pins, 3), pins.last_change(), pins.clock), (Vec::new(), 3, 3));
    }

    #[test]
    fn the_oldest_removals_are_forgotten() {
        let mut pins = SharedPins::default();
        let many = 2 * REMOVED_MAX as u32 + 1;
        (0..many).for_each(|number| pins.set(key(number), None, u64::from(number)));
        assert_eq!((pins.by_flow.len(), pins.by_change.len()), (REMOVED_MAX, REMOVED_MAX));
        assert!(pins.by_flow.contains_key(&key(many - 1)) && !pins.by_flow.contains_key(&key(0)));
    }
}
