//! Where packets to backends leave: from routes, links and neighbours to a [`NextHop`] for each
//! backend.
//!
//! The kernel resolves addresses; nobody else sends packets to a backend's address through it, so
//! it is asked to: at once and every second for those that are not known, every now and then for
//! the others, so that one that changed or went is noticed.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::snapshot::{NextHop, Station};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    /// Zero where it has none.
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    pub(super) up: bool,
    /// The bond or bridge that it is a port of.
    pub(super) controller: Option<u32>,
    /// The device that it lies on, as a VLAN does, if that is in this network namespace.
    pub(super) lower: Option<u32>,
    pub(super) kind: Kind,
}

/// What an interface is, as far as that matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Veth,
    Vlan,
    #[default]
    Other,
}

/// The kernel's way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) ifindex: u32,
    /// `None`: it is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// The route's own.
    pub(super) mtu: Option<u32>,
    /// The address is this machine's.
    pub(super) local: bool,
}

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// `None`: not resolved.
    pub(super) mac: Option<[u8; 6]>,
}

impl Neighbour {
    pub(super) fn unresolved(self) -> Neighbour {
        Neighbour { mac: None, ..self }
    }
}

/// What the kernel says has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Link,
    Route,
    Neighbour(Neighbour),
    /// Some changes were not heard.
    Lost,
}

/// The kernel's tables.
pub(super) trait Network {
    fn interfaces(&mut self) -> io::Result<Vec<Interface>>;
    fn neighbours(&mut self) -> io::Result<Vec<Neighbour>>;
    /// `None`: there is none.
    fn route(&mut self, to: IpAddr) -> io::Result<Option<Route>>;
    /// Has the kernel resolve an address, or make sure of it.
    fn kick(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()>;
}

/// Between two times that an unresolved address is asked for.
const UNRESOLVED_EVERY: Duration = Duration::from_secs(1);
/// The same of a resolved one.
const RESOLVED_EVERY: Duration = Duration::from_secs(15);
/// Changes of links and routes come in bursts: they are looked at when they pause.
const SETTLE: Duration = Duration::from_millis(50);

/// The next hops of a changing set of addresses.
pub(super) struct NextHops<N> {
    network: N,
    targets: BTreeSet<IpAddr>,
    interfaces: HashMap<u32, Interface>,
    routes: HashMap<IpAddr, Route>,
    macs: HashMap<(u32, IpAddr), [u8; 6]>,
    /// When each neighbour is to be asked for next.
    kick_at: HashMap<(u32, IpAddr), Instant>,
    reload_at: Option<Instant>,
}

impl<N: Network> NextHops<N> {
    /// Of no addresses yet.
    pub(super) fn new(network: N) -> io::Result<NextHops<N>> {
        let mut hops = NextHops {
            network,
            targets: BTreeSet::new(),
            interfaces: HashMap::new(),
            routes: HashMap::new(),
            macs: HashMap::new(),
            kick_at: HashMap::new(),
            reload_at: None,
        };
        hops.reload()?;
        Ok(hops)
    }

    /// The interface of that name.
    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.values().find(|interface| interface.name == name)
    }

    /// The MAC addresses by which a frame on an interface is for this machine. Those of the bond or
    /// bridge that it is a port of, and of its own ports, are among them: the program runs on the
    /// ports of a bond, and the addresses of a machine may be on the bridge.
    pub(super) fn stations(&self, interface: &Interface) -> BTreeSet<Station> {
        let ports = || self.interfaces.values().filter(|it| it.controller == Some(interface.index));
        let controller = interface.controller.and_then(|index| self.interfaces.get(&index));
        let own = || ports().chain(controller).chain([interface]).map(|it| it.mac);
        let places = ports().map(|it| it.index).chain([interface.index]);
        places.flat_map(|ifindex| own().map(move |mac| Station { ifindex, mac })).collect()
    }

    /// The interface of that index.
    pub(super) fn interface_at(&self, index: u32) -> Option<&Interface> {
        self.interfaces.get(&index)
    }

    /// The interface and the ports that it has: where its frames come in.
    pub(super) fn with_ports(&self, interface: &Interface) -> Vec<&Interface> {
        let is_one =
            |it: &&Interface| it.index == interface.index || it.controller == Some(interface.index);
        self.interfaces.values().filter(is_one).collect()
    }

    /// The devices that the interface's frames come through before they are its own: the ports of a
    /// bond or bridge, what a VLAN lies on.
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

    /// Whether VLANs lie on the interface.
    pub(super) fn has_vlans(&self, interface: &Interface) -> bool {
        let is_on_it = |it: &Interface| it.kind == Kind::Vlan && it.lower == Some(interface.index);
        self.interfaces.values().any(is_on_it)
    }

    /// Whose next hops are wanted.
    pub(super) fn aim(&mut self, targets: BTreeSet<IpAddr>, now: Instant) -> io::Result<()> {
        self.routes.retain(|address, _| targets.contains(address));
        // The targets first: if asking fails, the reload that follows asks for these.
        let before = std::mem::replace(&mut self.targets, targets);
        for address in self.targets.difference(&before) {
            if let Some(route) = self.network.route(*address)? {
                self.routes.insert(*address, route);
            }
        }
        self.follow_neighbours(now);
        Ok(())
    }

    /// Takes a change in; returns whether a hop may be another one now.
    pub(super) fn change(&mut self, change: Change, now: Instant) -> bool {
        match change {
            Change::Link | Change::Route | Change::Lost => {
                self.reload_at.get_or_insert(now + SETTLE);
                false
            }
            Change::Neighbour(Neighbour { ifindex, address, mac }) => {
                let key = (ifindex, address);
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

    /// Does what is due; returns whether a hop or an interface may be another one now.
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
            // An interface that is down or gone is heard of as a change; nothing is to be asked
            // over it.
            let _ = self.network.kick(ifindex, address);
            let resolved = self.macs.contains_key(&(ifindex, address));
            let pause = if resolved { RESOLVED_EVERY } else { UNRESOLVED_EVERY };
            self.kick_at.insert((ifindex, address), now + pause);
        }
        Ok(changed)
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.kick_at.values().copied().chain(self.reload_at).min()
    }

    /// The next hops; addresses without a route or interface have none.
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

    /// The route to a target.
    pub(super) fn route(&self, address: IpAddr) -> Option<&Route> {
        self.routes.get(&address)
    }

    fn reload(&mut self) -> io::Result<()> {
        let interfaces = self.network.interfaces()?;
        self.interfaces = interfaces.into_iter().map(|found| (found.index, found)).collect();
        let resolved = self.network.neighbours()?.into_iter();
        self.macs = resolved.filter_map(|n| Some(((n.ifindex, n.address), n.mac?))).collect();
        self.routes.clear();
        for address in &self.targets {
            if let Some(route) = self.network.route(*address)? {
                self.routes.insert(*address, route);
            }
        }
        Ok(())
    }

    /// Each next hop is asked for from now on, and no other address.
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
