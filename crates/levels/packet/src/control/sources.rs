//! Source addresses of full-nat that left the snapshot: known flows keep them until they end, and
//! new flows do not get them.
//!
//! The program gives new flows the addresses of their service's set. For replies it only needs to
//! know that an address is a source, and reads the flow at its port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Control;
use super::ports::COUNT_EVERY_NS;

impl Control {
    /// Returns the source addresses of all services, absent ones included.
    pub(super) fn sources(&self) -> BTreeSet<IpAddr> {
        let services = self.services.iter().flatten();
        let sources = services.map(|service| &service.sources);
        sources.flat_map(|it| it.addresses.iter().chain(&it.absent).copied()).collect()
    }

    /// Keeps the addresses of `before` that the services no longer have for their known flows.
    pub(super) fn retire_sources(&mut self, before: BTreeSet<IpAddr>) {
        let sources = self.sources();
        for address in before {
            self.leaving.entry(address).or_default();
        }
        let is_vip = |address: &IpAddr| {
            self.services.iter().flatten().any(|service| service.id.address == *address)
        };
        // Without a source, the program has no full-nat. A VIP has its own entry in the table.
        let may_stay = |address: &IpAddr| {
            !sources.is_empty() && !sources.contains(address) && !is_vip(address)
        };
        self.leaving.retain(|address, _| may_stay(address));
        // The addresses that left first are forgotten.
        let room = (self.limits.sources_max as usize).saturating_sub(sources.len());
        while self.leaving.len() > room {
            let longest = |(_, since): &(&IpAddr, &Option<u64>)| since.unwrap_or(u64::MAX);
            let Some(oldest) = self.leaving.iter().min_by_key(longest).map(|(it, _)| *it) else {
                return;
            };
            self.leaving.remove(&oldest);
        }
    }

    /// Forgets addresses that have left and have no flows any more, and returns them. `now_ns` is
    /// the time of the kernel's monotonic clock. The next tick publishes the change.
    ///
    /// Only a count of all ports shows that an address has no flows. It is made when the flow that
    /// lasted longest at the last count is over, so that an address with long flows costs little.
    pub fn release_sources(&mut self, now_ns: u64) -> Vec<IpAddr> {
        if self.leaving.is_empty() {
            return Vec::new();
        }
        // Until the removal is published, new flows get the address.
        if !self.is_dirty {
            self.leaving.values_mut().for_each(|since| _ = since.get_or_insert(now_ns));
        }
        // At this time the change is published, so that no flow has got the address later.
        let has_left = |since: Option<u64>, at_ns: u64| {
            since.is_some_and(|since| at_ns >= since.saturating_add(COUNT_EVERY_NS))
        };
        let may_be_free = |(address, since): (&IpAddr, &Option<u64>)| {
            has_left(*since, now_ns) && !self.longest_lasts(*address, now_ns)
        };
        if !self.leaving.iter().any(may_be_free) {
            return Vec::new();
        }
        let counted = self.count_ports_if_old(now_ns);
        let has_flows = |address: IpAddr| counted.of_sources.keys().any(|(_, of)| *of == address);
        let leaving = self.leaving.iter();
        let free = leaving
            .filter(|(address, since)| has_left(**since, counted.at_ns) && !has_flows(**address));
        let free: Vec<IpAddr> = free.map(|(address, _)| *address).collect();
        self.ports_counted = Some(counted);
        for address in &free {
            self.leaving.remove(address);
            self.is_dirty = true;
        }
        free
    }
}

#[cfg(test)]
mod tests;
