//! Source ports of full-nat in use, as the program's memory has them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Control;
use super::publish::ticks;
use super::service::Service;
use crate::directory::address_of;
use crate::reason::Reason;
use crate::snapshot::{BackendId, VipId};
use crate::twin::PortState;

/// Time between two counts, which read all places: up to some hundred MB.
pub(super) const COUNT_EVERY_NS: u64 = 10_000_000_000;

/// The ports in use by number of service.
#[derive(Debug, Default)]
pub(super) struct PortsCounted {
    /// Time of the count by the kernel's monotonic clock.
    pub(super) at_ns: u64,
    /// By service and number of backend.
    of_backends: HashMap<(u16, u16), u64>,
    /// By service and source address; addresses without ports are absent.
    pub(super) of_sources: HashMap<(u16, IpAddr), u64>,
    /// Of each address that leaves: the flow that lasts longest if no packets come.
    longest: HashMap<IpAddr, Longest>,
}

/// The flow that lasts longest.
#[derive(Debug)]
struct Longest {
    ticks_left: u64,
    memory: usize,
    port: usize,
}

/// Source ports of a VIP of full-nat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortsInUse {
    /// Ports in use, over all backends.
    pub in_use: u64,
    /// Ports in use at the backend with the most.
    pub fullest: u64,
    /// Ports for each backend and port.
    pub max: u64,
    /// The source addresses that new flows get, and those that only known flows have.
    pub sources: Vec<SourceInUse>,
}

/// A source address of a VIP of full-nat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceInUse {
    /// The address.
    pub address: IpAddr,
    /// Whether new flows get it.
    pub takes_new: bool,
    /// Ports in use, over all backends.
    pub in_use: u64,
}

/// A flow of full-nat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullNatFlow {
    /// The VIP.
    pub vip: VipId,
    /// Port of the VIP.
    pub vip_port: u16,
    /// Address and port of the client.
    pub client: SocketAddr,
    /// The backend; `None` if it has left.
    pub backend: Option<BackendId>,
    /// Seconds since its last packet, accurate to 2 s.
    pub idle_seconds: u64,
}

impl Control {
    /// Returns the flows with this source address and port; there may be one at each backend, its
    /// port and protocol. It reads every place. `now_ns` is a time of the kernel's monotonic clock.
    pub fn flows_of_source(&self, source: SocketAddr, now_ns: u64) -> Vec<FullNatFlow> {
        let lives = self.lives();
        let of_source = |port: &[AtomicU64]| {
            let InUse { state, family, .. } = in_use(port, &lives, now_ns)?;
            let service = self.services[usize::from(state.service)].as_ref()?;
            let flow = state.flow(port);
            let address = |(bytes, port)| Some(SocketAddr::new(address_of(&bytes, family)?, port));
            if address(flow.source)? != source {
                return None;
            }
            Some(FullNatFlow {
                vip: service.id,
                vip_port: flow.vip_port,
                client: address(flow.client)?,
                backend: self.numbers.name(state.backend, service.id),
                idle_seconds: state.idle_seconds(now_ns),
            })
        };
        self.memories.iter().flat_map(|memory| memory.ports.ports()).filter_map(of_source).collect()
    }

    /// Returns the source ports in use at a time of the kernel's monotonic clock, or up to 10 s
    /// before it.
    pub fn ports_in_use(&mut self, now_ns: u64) -> BTreeMap<VipId, PortsInUse> {
        if self.sources().is_empty() {
            return BTreeMap::new();
        }
        let counted = self.count_ports_if_old(now_ns);
        let services =
            (0..).zip(&self.services).filter_map(|(number, it)| Some((number, it.as_ref()?)));
        let with_sources = services.filter(|(_, it)| !it.sources.addresses.is_empty());
        let in_use = with_sources
            .map(|(number, service)| (service.id, ports_of(number, service, &counted)))
            .collect();
        self.ports_counted = Some(counted);
        in_use
    }

    /// Returns the number of packets that were dropped for want of a source port, by VIP.
    pub fn ports_exhausted(&self) -> Vec<(VipId, u64)> {
        let services = self.services.iter().enumerate();
        let services = services.filter_map(|(number, it)| Some((number, it.as_ref()?)));
        let with_sources = services.filter(|(_, it)| !it.sources.addresses.is_empty());
        let dropped = |number: usize| {
            let cpus = self.memories.iter().flat_map(|memory| &memory.cpus);
            cpus.map(|cpu| cpu.reasons(Some(number))[Reason::PortsExhausted as usize].load(Relaxed))
                .sum()
        };
        with_sources.map(|(number, service)| (service.id, dropped(number))).collect()
    }

    /// Returns the last count, or a new one if that is 10 s old. The caller stores it again.
    pub(super) fn count_ports_if_old(&mut self, now_ns: u64) -> PortsCounted {
        let is_recent = |counted: &PortsCounted| {
            now_ns.checked_sub(counted.at_ns).is_some_and(|age| age < COUNT_EVERY_NS)
        };
        let recent = self.ports_counted.take().filter(is_recent);
        recent.unwrap_or_else(|| self.count_ports(now_ns))
    }

    /// Returns the lives of flows by number of service; `None`: it is not full-nat.
    fn lives(&self) -> Vec<Option<Lives>> {
        let lives = self.services.iter().map(|service| {
            let service = service.as_ref().filter(|it| !it.sources.addresses.is_empty())?;
            let timeouts = self.timeouts_of(service);
            let family = if service.id.address.is_ipv4() { 4 } else { 6 };
            Some(([timeouts.open, timeouts.closing, timeouts.udp].map(ticks), family))
        });
        lives.collect()
    }

    /// Counts the ports in use. It reads every place.
    fn count_ports(&self, now_ns: u64) -> PortsCounted {
        let lives = self.lives();
        let mut counted = PortsCounted { at_ns: now_ns, ..PortsCounted::default() };
        for (number, memory) in self.memories.iter().enumerate() {
            for (index, port) in memory.ports.ports().enumerate() {
                let Some(found) = in_use(port, &lives, now_ns) else { continue };
                let InUse { state, source, ticks_left, .. } = found;
                *counted.of_backends.entry((state.service, state.backend)).or_default() += 1;
                let Some(source) = source else { continue };
                *counted.of_sources.entry((state.service, source)).or_default() += 1;
                let longest = counted.longest.get(&source);
                if self.leaving.contains_key(&source)
                    && longest.is_none_or(|it| it.ticks_left < ticks_left)
                {
                    let longest = Longest { ticks_left, memory: number, port: index };
                    counted.longest.insert(source, longest);
                }
            }
        }
        counted
    }

    /// Whether the flow with this source address that lasted longest at the last count still lasts.
    /// It reads one place.
    pub(super) fn longest_lasts(&self, address: IpAddr, now_ns: u64) -> bool {
        let counted = self.ports_counted.as_ref();
        let Some(longest) = counted.and_then(|it| it.longest.get(&address)) else { return false };
        let port = self.memories[longest.memory].ports.port(longest.port);
        in_use(port, &self.lives(), now_ns).is_some_and(|it| it.source == Some(address))
    }
}

/// A port with a flow that has not expired.
struct InUse {
    state: PortState,
    source: Option<IpAddr>,
    /// Family of the addresses.
    family: u8,
    /// Until the flow expires, without packets.
    ticks_left: u64,
}

fn in_use(port: &[AtomicU64], lives: &[Option<Lives>], now_ns: u64) -> Option<InUse> {
    let state = PortState::of(port)?;
    let (lives, family) = (*lives.get(usize::from(state.service))?)?;
    let ticks_left = state.ticks_left(lives, now_ns)?;
    let source = address_of(&state.source(port), family);
    Some(InUse { state, source, family, ticks_left })
}

/// The lives of a service's flows, in ticks (established TCP, closing TCP, UDP), and the family of
/// its VIP.
type Lives = ([u16; 3], u8);

fn ports_of(number: u16, service: &Service, counted: &PortsCounted) -> PortsInUse {
    let of_backends = counted.of_backends.iter().filter(|((of, _), _)| *of == number);
    let of_backends = of_backends.map(|(_, count)| *count);
    let addresses = &service.sources.addresses;
    let ports = u64::from(service.sources.port_last - service.sources.port_first) + 1;
    let taken = |address: IpAddr| counted.of_sources.get(&(number, address)).copied();
    let own = addresses.iter().map(|&address| SourceInUse {
        address,
        takes_new: true,
        in_use: taken(address).unwrap_or_default(),
    });
    let others = counted
        .of_sources
        .iter()
        .filter(|((of, source), _)| *of == number && !addresses.contains(source));
    let others = others.map(|((_, source), count)| SourceInUse {
        address: *source,
        takes_new: false,
        in_use: *count,
    });
    let mut sources: Vec<_> = own.chain(others).collect();
    sources.sort_by_key(|it| (!it.takes_new, it.address));
    PortsInUse {
        in_use: of_backends.clone().sum(),
        fullest: of_backends.max().unwrap_or_default(),
        max: ports * addresses.len() as u64,
        sources,
    }
}
