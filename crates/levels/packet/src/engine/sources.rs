//! Source addresses of full-nat on this machine: the network must bring their packets here, and the
//! machine's own connections must not use them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::notice::Notice;
use crate::own_address::{is_own, source_towards};
use crate::snapshot::{Snapshot, VipSpec};

/// The source addresses of a snapshot that are unusable.
#[derive(Debug, Default)]
pub(super) struct SourceAddresses {
    /// Addresses that this machine does not have.
    absent: BTreeSet<IpAddr>,
    /// Those of `absent` that were logged.
    said_absent: BTreeSet<IpAddr>,
    /// Addresses that this machine uses for its own connections, which were logged.
    said_shared: BTreeSet<IpAddr>,
}

impl SourceAddresses {
    /// Finds the addresses that this machine does not have, and returns those of the last time.
    pub(super) fn look(&mut self, snapshot: &Snapshot) -> BTreeSet<IpAddr> {
        let absent = addresses(snapshot).into_iter().filter(|it| !is_own(*it)).collect();
        std::mem::replace(&mut self.absent, absent)
    }

    /// Undoes [`Self::look`].
    pub(super) fn restore(&mut self, absent: BTreeSet<IpAddr>) {
        self.absent = absent;
    }

    pub(super) fn differ_from(&self, absent: &BTreeSet<IpAddr>) -> bool {
        self.absent != *absent
    }

    pub(super) fn absent(&self) -> &BTreeSet<IpAddr> {
        &self.absent
    }

    /// Gives new flows no absent address if their VIP has another one. Without any, routers may
    /// still send its packets here.
    pub(super) fn restrict(&self, snapshot: &mut Snapshot) {
        for vip in &mut snapshot.vips {
            if self.has_own(vip) {
                let is_absent = |address: &mut IpAddr| self.absent.contains(address);
                vip.sources.absent = vip.sources.addresses.extract_if(.., is_absent).collect();
            }
        }
    }

    fn has_own(&self, vip: &VipSpec) -> bool {
        vip.sources.addresses.iter().any(|address| !self.absent.contains(address))
    }

    /// Returns what is new since the last time.
    pub(super) fn judge(&mut self, snapshot: &Snapshot) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut shared = BTreeSet::new();
        for vip in &snapshot.vips {
            let is_left = self.has_own(vip);
            for &address in &vip.sources.addresses {
                if self.absent.contains(&address) {
                    if self.said_absent.insert(address) {
                        notices.push(Notice::SourceAbsent { address, is_left });
                    }
                    continue;
                }
                let mut backends = vip.backends.iter().map(|backend| backend.address);
                let own = backends.find(|it| source_towards(*it) == Some(address));
                if let Some(backend) = own
                    && shared.insert(address)
                    && !self.said_shared.contains(&address)
                {
                    notices.push(Notice::SourceShared { address, backend });
                }
            }
        }
        let wanted = addresses(snapshot);
        let back = self.said_absent.difference(&self.absent).filter(|it| wanted.contains(it));
        notices.extend(back.map(|address| Notice::SourceBack { address: *address }));
        self.said_absent = self.absent.clone();
        self.said_shared = shared;
        notices
    }
}

fn addresses(snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    snapshot.vips.iter().flat_map(|vip| vip.sources.addresses.iter().copied()).collect()
}
