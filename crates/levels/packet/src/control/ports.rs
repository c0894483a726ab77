//! Source ports of full-nat in use, as the program's memory has them.

use std::collections::{BTreeMap, HashMap};

use super::Control;
use super::publish::ticks;
use crate::snapshot::VipId;
use crate::twin::PortState;

/// Time between two counts, which read all places: up to some hundred MB.
const COUNT_EVERY_NS: u64 = 10_000_000_000;

/// The ports in use by number of service and backend, with the time of the count.
pub(super) type PortsCounted = (u64, HashMap<(u16, u16), u64>);

/// Source ports of a VIP of full-nat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortsInUse {
    /// Ports in use, over all backends.
    pub in_use: u64,
    /// Ports in use at the backend with the most.
    pub fullest: u64,
    /// Ports for each backend and port.
    pub max: u64,
}

impl Control {
    /// Returns the source ports in use at a time of the kernel's monotonic clock, or up to 10 s
    /// before it.
    pub fn ports_in_use(&mut self, now_ns: u64) -> BTreeMap<VipId, PortsInUse> {
        let lives = self.services.iter().map(|service| {
            let service = service.as_ref().filter(|it| !it.sources.addresses.is_empty())?;
            let timeouts = self.timeouts_of(service);
            Some([timeouts.open, timeouts.closing, timeouts.udp].map(ticks))
        });
        let lives = lives.collect::<Vec<_>>();
        if lives.iter().all(Option::is_none) {
            return BTreeMap::new();
        }
        let is_recent = |(at, _): &PortsCounted| {
            now_ns.checked_sub(*at).is_some_and(|age| age < COUNT_EVERY_NS)
        };
        let counted = self.ports_counted.take().filter(is_recent);
        let (at, counts) = counted.unwrap_or_else(|| (now_ns, self.count_ports(&lives, now_ns)));
        let services =
            (0..).zip(&self.services).filter_map(|(number, it)| Some((number, it.as_ref()?)));
        let with_sources = services.filter(|(_, it)| !it.sources.addresses.is_empty());
        let count = |(number, service): (u16, &super::service::Service)| {
            let of_vip =
                counts.iter().filter(|((of, _), _)| *of == number).map(|(_, count)| *count);
            let ports = u64::from(service.sources.port_last - service.sources.port_first) + 1;
            let max = ports * service.sources.addresses.len() as u64;
            let fullest = of_vip.clone().max().unwrap_or_default();
            (service.id, PortsInUse { in_use: of_vip.sum(), fullest, max })
        };
        let in_use = with_sources.map(count).collect();
        self.ports_counted = Some((at, counts));
        in_use
    }

    /// Counts by number of service and backend. It reads every place.
    fn count_ports(&self, lives: &[Option<[u16; 3]>], now_ns: u64) -> HashMap<(u16, u16), u64> {
        let mut counts = HashMap::new();
        for port in self.memories.iter().flat_map(|memory| memory.ports.ports()) {
            let Some(state) = PortState::of(port) else { continue };
            let Some(Some(lives)) = lives.get(usize::from(state.service)) else { continue };
            if !state.is_over(*lives, now_ns) {
                *counts.entry((state.service, state.backend)).or_default() += 1;
            }
        }
        counts
    }
}
