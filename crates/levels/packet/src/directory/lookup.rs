//! The hash tables of VIPs, replies, server ids and MAC addresses: open addressing with few probes.

use super::bytes::put;
use crate::abi::{MACS, Mac, PROBES_MAX, Plain, QuicServer, Reverse, Vip};
use crate::address_hash::{address_hash, station_hash};

/// A hash table with its seed.
pub(super) struct Lookup<T> {
    pub(super) seed: u32,
    entries: Vec<Option<T>>,
}

impl<T: Plain> Lookup<T> {
    /// Makes a table with `room` entries per item, so that there are few probes.
    fn new(
        items: &[T],
        room: usize,
        entries_max: u32,
        seed: u32,
        hash: impl Fn(&T) -> u32,
    ) -> Option<Lookup<T>> {
        let entries = items
            .len()
            .saturating_mul(room)
            .min(entries_max as usize)
            .next_power_of_two()
            .max(PROBES_MAX);
        Lookup::of_size(items, entries, seed, hash)
    }

    fn of_size(
        items: &[T],
        entries: usize,
        seed: u32,
        hash: impl Fn(&T) -> u32,
    ) -> Option<Lookup<T>> {
        let mut table = Lookup { seed, entries: vec![None; entries] };
        for item in items {
            let home = hash(item) as usize;
            let mut probes = (0..PROBES_MAX).map(|probe| (home + probe) & (entries - 1));
            let free = probes.find(|&at| table.entries[at].is_none())?;
            table.entries[free] = Some(*item);
        }
        Some(table)
    }

    pub(super) fn mask(&self) -> u32 {
        self.entries.len() as u32 - 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// Writes the table to zeroed memory.
    pub(super) fn write(&self, bytes: &mut [u8], start: usize) {
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(entry) = entry {
                put(bytes, start, index, entry);
            }
        }
    }
}

impl Lookup<Vip> {
    pub(super) fn vips(
        vips: &[Vip],
        room: usize,
        entries_max: u32,
        seed: u32,
    ) -> Option<Lookup<Vip>> {
        Lookup::new(vips, room, entries_max, seed, |it| {
            address_hash(seed, &it.address, it.port, it.protocol)
        })
    }
}

impl Lookup<Reverse> {
    pub(super) fn replies(
        replies: &[Reverse],
        room: usize,
        entries_max: u32,
        seed: u32,
    ) -> Option<Lookup<Reverse>> {
        Lookup::new(replies, room, entries_max, seed, |it| {
            address_hash(seed, &it.address, it.port, it.protocol)
        })
    }
}

impl Lookup<QuicServer> {
    pub(super) fn servers(
        servers: &[QuicServer],
        room: usize,
        entries_max: u32,
        seed: u32,
    ) -> Option<Lookup<QuicServer>> {
        Lookup::new(servers, room, entries_max, seed, |it| {
            address_hash(seed, &it.id, it.config.to_ne_bytes(), 0)
        })
    }
}

impl Lookup<Mac> {
    /// Makes a table of the fixed size that the program expects.
    pub(super) fn macs(macs: &[Mac], seed: u32) -> Option<Lookup<Mac>> {
        let hash = |it: &Mac| station_hash(seed, it.ifindex, it.address);
        Lookup::of_size(macs, MACS, seed, hash)
    }
}

/// Finds the entry of a VIP with the program's search.
#[cfg(test)]
pub(super) fn probe(
    at: impl Fn(usize) -> Vip,
    mask: u32,
    seed: u32,
    key: (&[u8; 16], [u8; 2], u8),
) -> Option<Vip> {
    let home = address_hash(seed, key.0, key.1, key.2) as usize;
    (0..PROBES_MAX)
        .map(|probe| at((home + probe) & mask as usize))
        .take_while(|vip| vip.kind != crate::abi::vip_kind::FREE)
        .find(|vip| (&vip.address, vip.port, vip.protocol) == key)
}
