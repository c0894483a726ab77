//! Hashes of the tables of VIPs, replies and MAC addresses.

use crate::packet::AddressBytes;

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hash of the tables of VIPs and replies, as in `vip.h`: an entry is within
/// [`PROBES_MAX`](crate::abi::PROBES_MAX) of it. `port` is in network order.
///
/// Words are in memory order, so the last byte of an address, where the addresses of a network
/// differ, is the highest of its word. The lower bits of a product do not depend on higher ones.
/// Therefore each step folds the upper half down, and the result is the last upper half.
pub fn address_hash(seed: u32, address: &AddressBytes, port: [u8; 2], protocol: u8) -> u32 {
    let (words, _) = address.as_chunks::<8>();
    let rest = u64::from(u16::from_ne_bytes(port)) << 16 | u64::from(protocol);
    let words = words.iter().map(|word| u64::from_ne_bytes(*word)).chain([rest]);
    let hash =
        words.fold(u64::from(seed), |hash, word| (hash ^ hash >> 32 ^ word).wrapping_mul(FACTOR));
    (hash >> 32) as u32
}

/// Hash of the table of MAC addresses, as in `station.h`.
pub fn station_hash(seed: u32, ifindex: u32, mac: [u8; 6]) -> u32 {
    let [a, b, c, d, e, f] = mac;
    let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let folded = word ^ word >> 32 ^ u64::from(ifindex ^ seed);
    (folded.wrapping_mul(FACTOR) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MACS, PROBES_MAX};
    use crate::snapshot::Station;

    type Key = (AddressBytes, u16, u8);

    const NETS: [AddressBytes; 3] = [
        [192, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];

    /// Keys of typical sites: neighbouring addresses, neighbouring ports, both protocols, subnets.
    fn sites() -> Vec<(&'static str, Vec<Key>)> {
        let [hosts, subnets] = [1, 2].map(|back| {
            let keys = NETS.iter().flat_map(move |net| {
                (1..=250).map(move |number| {
                    let mut address = *net;
                    let last = if address[4..] == [0; 12] && net[0] != 0x20 { 3 } else { 15 };
                    address[last + 1 - back] = number;
                    (address, 8080, 6)
                })
            });
            keys.collect::<Vec<Key>>()
        });
        let ports = (1..=250).map(|port| (NETS[0], port, 6)).collect();
        let spaced = (1..=60).map(|port| (NETS[0], port * 1000, 6)).collect();
        let both = (1..=125).flat_map(|port| [6, 17].map(|protocol| (NETS[2], port, protocol)));
        vec![
            ("hosts", hosts),
            ("subnets", subnets),
            ("ports", ports),
            ("ports a thousand apart", spaced),
            ("ports of both protocols", both.collect()),
        ]
    }

    /// Maximum number of probes to an entry, with four positions per key.
    fn longest(keys: &[Key], seed: u32) -> usize {
        let places = (keys.len() * 4).next_power_of_two();
        let mut taken = vec![false; places];
        let ways = keys.iter().map(|(address, port, protocol)| {
            let home = address_hash(seed, address, port.to_be_bytes(), *protocol) as usize;
            let way = (0..places).find(|way| !taken[(home + way) % places]).unwrap();
            taken[(home + way) % places] = true;
            way + 1
        });
        ways.max().unwrap_or(0)
    }

    #[test]
    fn the_keys_of_a_typical_site_fit_under_nearly_every_seed() {
        for (name, keys) in sites() {
            let good = (0..100).filter(|seed| longest(&keys, *seed) <= PROBES_MAX).count();
            assert!(good >= 90, "{name}: {good} of 100 seeds");
        }
    }

    #[test]
    fn the_maximum_number_of_stations_fits_under_nearly_every_seed() {
        let most = Station::MAX as u32;
        let finds = |seed: u32| {
            let mut taken = [false; MACS];
            (0..most).all(|number| {
                let mac = [2, 0, 0, 0, (number / 16) as u8, (number * 7) as u8];
                let home = station_hash(seed, 2 + number % 16, mac) as usize;
                let free = (0..PROBES_MAX).map(|way| (home + way) % MACS).find(|at| !taken[*at]);
                free.is_some_and(|at| !std::mem::replace(&mut taken[at], true))
            })
        };
        let good = (0..100).filter(|seed| finds(*seed * 12_345)).count();
        assert!(good >= 90, "{good} of 100 seeds");
    }
}
