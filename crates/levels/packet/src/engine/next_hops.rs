//! Computes the [`NextHop`] of each backend from routes, links and neighbours.
//!
//! The kernel resolves MAC addresses. It sends no packets of its own to backends, so it must be
//! triggered: at once and every second for unresolved addresses, and at longer intervals for the
//! others, to notice changes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::snapshot::{NextHop, Station};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    /// All zero if it has none.
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    pub(super) up: bool,
    /// The bond or bridge that it is a port of.
    pub(super) controller: Option<u32>,
    /// The device below, as for a VLAN, if it is in this network namespace.
    pub(super) lower: Option<u32>,
    pub(super) kind: Kind,
}

/// Kind of an interface, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Veth,
    Vlan,
    #[default]
    Other,
}

/// The kernel's route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) ifindex: u32,
    /// `None`: the address is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// MTU of the route itself.
    pub(super) mtu: Option<u32>,
    /// Whether the address belongs to this machine.
    pub(super) local: bool,
}

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// `None`: unresolved.
    pub(super) mac: Option<[u8; 6]>,
    /// An operator's static entry. A request to resolve it would remove it (Linux 5.16 and later).
    pub(super) is_static: bool,
}

impl Neighbour {
    pub(super) fn unresolved(self) -> Neighbour {
        Neighbour { mac: None, is_static: false, ..self }
    }
}

/// Kind of a change in the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Link,
    Route,
    Neighbour(Neighbour),
    /// Some notifications were lost.
    Lost,
}

/// The kernel's tables.
pub(super) trait Network {
    fn interfaces(&mut self) -> io::Result<Vec<Interface>>;
    fn neighbours(&mut self) -> io::Result<Vec<Neighbour>>;
    /// Returns `None` if there is no route.
    fn route(&mut self, to: IpAddr) -> io::Result<Option<Route>>;
    /// Makes the kernel resolve or revalidate an address.
    fn kick(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()>;
}

/// Interval between attempts to resolve an address.
const UNRESOLVED_EVERY: Duration = Duration::from_secs(1);
/// Interval between revalidations of a resolved address.
const RESOLVED_EVERY: Duration = Duration::from_secs(15);
/// Delay of reloads: changes of links and routes come in bursts.
const SETTLE: Duration = Duration::from_millis(50);

/// The next hops of a changing set of addresses.
pub(super) struct NextHops<N> {
    network: N,
    targets: BTreeSet<IpAddr>,
    interfaces: HashMap<u32, Interface>,
    routes: HashMap<IpAddr, Route>,
    macs: HashMap<(u32, IpAddr), [u8; 6]>,
    /// Those of `macs` that are static.
    fixed: HashSet<(u32, IpAddr)>,
    /// Time of the next request for each neighbour.
    kick_at: HashMap<(u32, IpAddr), Instant>,
    reload_at: Option<Instant>,
}

impl<N: Network> NextHops<N> {
    /// Makes it without addresses.
    pub(super) fn new(network: N) -> io::Result<NextHops<N>> {
        let mut hops = NextHops {
            network,
            targets: BTreeSet::new(),
            interfaces: HashMap::new(),
            routes: HashMap::new(),
            macs: HashMap::new(),
            fixed: HashSet::new(),
            kick_at: HashMap::new(),
            reload_at: None,
        };
        hops.reload()?;
        Ok(hops)
    }

    /// Returns the interface of this name.
    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.values().find(|interface| interface.name == name)
    }

    /// Returns the destination MAC addresses of frames for this machine on an interface. They
    /// include those of its bond or bridge, and of its own ports: the program runs on the ports of
    /// a bond, and a machine's addresses may be on the bridge.
    pub(super) fn stations(&self, interface: &Interface) -> BTreeSet<Station> {
        let ports = || self.interfaces.values().filter(|it| it.controller == Some(interface.index));
        let controller = interface.controller.and_then(|index| self.interfaces.get(&index));
        let own = || ports().chain(controller).chain([interface]).map(|it| it.mac);
        let places = ports().map(|it| it.index).chain([interface.index]);
        places.flat_map(|ifindex| own().map(move |mac| Station { ifindex, mac })).collect()
    }

    /// Returns the interface of this index.
    pub(super) fn interface_at(&self, index: u32) -> Option<&Interface> {
        self.interfaces.get(&index)
    }

    /// Returns the interface and its ports, where its frames arrive.
    pub(super) fn with_ports(&self, interface: &Interface) -> Vec<&Interface> {
        let is_one =
            |it: &&Interface| it.index == interface.index || it.controller == Some(interface.index);
        self.interfaces.values().filter(is_one).collect()
    }

    /// Returns the devices that frames pass before the interface: the ports of a bond or bridge,
    /// the device below a VLAN.
    pub(super) fn below(&self, interface: &Interface) -> Vec<&Interface> {
        let mut found: Vec<&Interface> = Vec::new();
        let mut above = vec![interface];
        while let Some(upper) = above.pop() {
            let is_below = |it: &Interface| {
                it.controller == Some(upper.index) || upper.lower == Some(it.index)
            };
            for device in self.interfaces.values().filter(|it| is_below(it)) {
                let is_new = found.iter().all(|known| known.index != device.index);
                if is_new && device.index != interface.index {
                    found.push(device);
                    above.push(device);
                }
            }
        }
        found
    }

    /// Whether the interface has VLANs.
    pub(super) fn has_vlans(&self, interface: &Interface) -> bool {
        let is_on_it = |it: &Interface| it.kind == Kind::Vlan && it.lower == Some(interface.index);
        self.interfaces.values().any(is_on_it)
    }

    /// Sets the addresses that need next hops.
    pub(super) fn aim(&mut self, targets: BTreeSet<IpAddr>, now: Instant) -> io::Result<()> {
        self.routes.retain(|address, _| targets.contains(address));
        // Sets the targets first: if a request fails, the next reload uses these.
        let before = std::mem::replace(&mut self.targets, targets);
        for address in self.targets.difference(&before) {
            if let Some(route) = self.network.route(*address)? {
                self.routes.insert(*address, route);
            }
        }
        self.follow_neighbours(now);
        Ok(())
    }

    /// Processes a change. Returns whether a next hop may have changed.
    pub(super) fn change(&mut self, change: Change, now: Instant) -> bool {
        match change {
            Change::Link | Change::Route | Change::Lost => {
                self.reload_at.get_or_insert(now + SETTLE);
                false
            }
            Change::Neighbour(Neighbour { ifindex, address, mac, is_static }) => {
                let key = (ifindex, address);
                if is_static {
                    self.fixed.insert(key);
                } else {
                    self.fixed.remove(&key);
                }
                let before = match mac {
                    Some(mac) => self.macs.insert(key, mac),
                    None => self.macs.remove(&key),
                };
                let known = self.kick_at.get_mut(&key);
                if let (Some(at), None) = (&known, mac) {
                    let soon = now + UNRESOLVED_EVERY;
                    if **at > soon {
                        self.kick_at.insert(key, soon);
                        return before != mac;
                    }
                }
                known.is_some() && before != mac
            }
        }
    }

    /// Does everything that is due. Returns whether a next hop or an interface may have changed.
    pub(super) fn tick(&mut self, now: Instant) -> io::Result<bool> {
        let mut changed = false;
        if self.reload_at.is_some_and(|at| at <= now) {
            self.reload_at = None;
            self.reload()?;
            self.follow_neighbours(now);
            changed = true;
        }
        let due: Vec<_> =
            self.kick_at.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
        for (ifindex, address) in due {
            if !self.fixed.contains(&(ifindex, address)) {
                // A notification reports an interface that is down or gone; then no request is
                // possible.
                let _ = self.network.kick(ifindex, address);
            }
            let resolved = self.macs.contains_key(&(ifindex, address));
            let pause = if resolved { RESOLVED_EVERY } else { UNRESOLVED_EVERY };
            self.kick_at.insert((ifindex, address), now + pause);
        }
        Ok(changed)
    }

    /// Reads everything again, and asks the kernel to resolve what is due.
    pub(super) fn refresh(&mut self, now: Instant) -> io::Result<()> {
        self.reload()?;
        self.follow_neighbours(now);
        self.tick(now).map(drop)
    }

    /// Returns the time of the next call of [`Self::tick`].
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.kick_at.values().copied().chain(self.reload_at).min()
    }

    /// Returns the next hops; addresses without a route or an interface have none.
    pub(super) fn hops(&self) -> HashMap<IpAddr, NextHop> {
        let hop = |address: &IpAddr| {
            let route = self.routes.get(address)?;
            let interface = self.interfaces.get(&route.ifindex)?;
            let mtu = route.mtu.unwrap_or(interface.mtu).min(interface.mtu);
            let neighbour = (route.ifindex, route.gateway.unwrap_or(*address));
            let usable = interface.up && !route.local;
            Some(NextHop {
                ifindex: route.ifindex,
                destination_mac: self.macs.get(&neighbour).copied().filter(|_| usable),
                source_mac: interface.mac,
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
            })
        };
        self.targets.iter().filter_map(|address| Some((*address, hop(address)?))).collect()
    }

    /// Returns the route to a target.
    pub(super) fn route(&self, address: IpAddr) -> Option<&Route> {
        self.routes.get(&address)
    }

    fn reload(&mut self) -> io::Result<()> {
        let interfaces = self.network.interfaces()?;
        self.interfaces = interfaces.into_iter().map(|found| (found.index, found)).collect();
        let neighbours = self.network.neighbours()?;
        let fixed = neighbours.iter().filter(|it| it.is_static);
        self.fixed = fixed.map(|it| (it.ifindex, it.address)).collect();
        let resolved = neighbours.into_iter();
        self.macs = resolved.filter_map(|n| Some(((n.ifindex, n.address), n.mac?))).collect();
        self.routes.clear();
        for address in &self.targets {
            if let Some(route) = self.network.route(*address)? {
                self.routes.insert(*address, route);
            }
        }
        Ok(())
    }

    /// Schedules requests for each next hop, and for no other address.
    fn follow_neighbours(&mut self, now: Instant) {
        let routes = self.routes.iter().filter(|(_, route)| !route.local);
        let wanted: BTreeSet<_> = routes
            .map(|(address, route)| (route.ifindex, route.gateway.unwrap_or(*address)))
            .collect();
        self.kick_at.retain(|key, _| wanted.contains(key));
        for key in wanted {
            self.kick_at.entry(key).or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests;
