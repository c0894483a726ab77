//! Next hops of a few addresses without an engine, for `equipoise decap`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use super::link::{loses, tells};
use super::netlink::Netlink;
use super::next_hops::{Kind, NextHops};
use crate::snapshot::NextHop;

/// The ways from this thread's network namespace to some addresses.
pub struct Ways(NextHops<Netlink>);

impl Ways {
    /// Reads them, and asks the kernel to resolve the addresses.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn new(to: BTreeSet<IpAddr>) -> io::Result<Ways> {
        let mut hops = NextHops::new(Netlink::open()?)?;
        hops.aim(to, Instant::now())?;
        Ok(Ways(hops))
    }

    /// Reads the next hops again; addresses without a route, and this host's own, have none.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn read(&mut self) -> io::Result<HashMap<IpAddr, NextHop>> {
        self.0.refresh(Instant::now())?;
        Ok(self.hops())
    }

    fn hops(&self) -> HashMap<IpAddr, NextHop> {
        let mut hops = self.0.hops();
        hops.retain(|address, _| self.0.route(*address).is_some_and(|route| !route.local));
        hops
    }

    /// Whether frames that native XDP sends to one of the next hops would be lost; see
    /// `engine/device.rs`. The program runs on the interface `ifindex`.
    pub(crate) fn lose(&self, ifindex: u32) -> bool {
        let hops = self.hops();
        let out = hops.values().filter_map(|hop| self.0.interface_at(hop.ifindex));
        let mut unsure = out.filter(|it| it.kind == Kind::Veth || it.index != ifindex);
        tells(ifindex) && unsure.any(|it| loses(it.index))
    }
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ways").field(&self.hops()).finish()
    }
}
