//! Fills a table by Maglev's algorithm.

use super::shares::checked_total;
use super::{HostId, NO_HOST, SharesError};
use crate::hash::{KeyHash, Seed, SipHash13};

/// Returns a table of `entries` (a power of two) with entries for each host in proportion to its
/// capacity. Few entries differ when hosts are added or removed. The result depends only on the
/// arguments, not on the order of hosts.
///
/// # Source
/// Eisenbud et al., "Maglev: a fast and reliable software network load balancer", NSDI 2016,
/// section 3.4 and pseudocode 1. Deviates: the table's size is a power of two, so that tau is an
/// index, and skips are odd instead of the size being prime. Either way, a host's preferences
/// contain every entry once. A host takes a turn in `capacity / largest capacity` of the rounds.
///
/// # Errors
/// [`SharesError`].
///
/// # Panics
/// If `entries` is not a power of two.
pub fn maglev(
    capacities: &[(HostId, u32)],
    entries: usize,
    seed: Seed,
) -> Result<Vec<HostId>, SharesError> {
    assert!(entries.is_power_of_two(), "{entries} entries are not a power of two");
    checked_total(capacities)?;
    let hash = SipHash13::with_seed(seed);
    let mut hosts: Vec<Preferences> = capacities
        .iter()
        .filter(|(_, capacity)| *capacity > 0)
        .map(|&(host, capacity)| Preferences {
            host,
            capacity: u64::from(capacity),
            credit: 0,
            next: hash.hash(&(u64::from(host) << 1)) as usize,
            skip: hash.hash(&(u64::from(host) << 1 | 1)) as usize | 1,
        })
        .collect();
    hosts.sort_unstable_by_key(|preferences| preferences.host);
    let largest = hosts.iter().map(|preferences| preferences.capacity).max().unwrap_or(1);
    let mut table = vec![NO_HOST; entries];
    let mut free = entries;
    loop {
        for preferences in &mut hosts {
            preferences.credit += preferences.capacity;
            if preferences.credit < largest {
                continue;
            }
            preferences.credit -= largest;
            let entry = preferences.first_free(&table);
            table[entry] = preferences.host;
            free -= 1;
            if free == 0 {
                return Ok(table);
            }
        }
    }
}

struct Preferences {
    host: HostId,
    capacity: u64,
    /// Earned turns, in units of the largest capacity.
    credit: u64,
    next: usize,
    skip: usize,
}

impl Preferences {
    /// Returns the most preferred free entry. There must be one.
    fn first_free(&mut self, table: &[HostId]) -> usize {
        loop {
            let entry = self.next & (table.len() - 1);
            self.next = self.next.wrapping_add(self.skip);
            if table[entry] == NO_HOST {
                return entry;
            }
        }
    }
}
