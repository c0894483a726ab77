//! Properties of an interface that determine how the program runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attach::{InterfaceState, Role};
use super::ethtool::Offload;
use super::link::{XdpMode, loses, tells};
use super::next_hops::{Interface, Kind, Network, NextHops};
use super::notice::Notice;
use super::offloads::Switch;

/// Properties of an existing interface that determine how the program runs on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    /// Names of the interface and its ports, where frames arrive.
    pub(super) ports: Vec<String>,
    /// Names of the devices below the interface.
    pub(super) below: Vec<String>,
    /// Reason why native mode would lose packets.
    pub(super) not_native: Option<String>,
    pub(super) is_veth: bool,
    pub(super) has_vlans: bool,
}

impl Device {
    /// Reads the properties of `interface`. `programs` are the interfaces that the program is to
    /// run on, `ways_out` those that send packets.
    pub(super) fn of<N: Network>(
        interface: &Interface,
        hops: &NextHops<N>,
        programs: &BTreeMap<Arc<str>, Role>,
        ways_out: &BTreeSet<u32>,
    ) -> Device {
        let names = |devices: Vec<&Interface>| {
            let mut names: Vec<String> = devices.iter().map(|it| it.name.clone()).collect();
            names.sort();
            names
        };
        let out = ways_out.iter().filter_map(|index| hops.interface_at(*index));
        // A driver has transmit queues where the program runs; but a veth's peer must also accept
        // the frames.
        let unsure = out.filter(|it| it.kind == Kind::Veth || !programs.contains_key(&*it.name));
        Device {
            index: interface.index,
            ports: names(hops.with_ports(interface)),
            below: names(hops.below(interface)),
            not_native: tells(interface.index).then(|| lost_by(unsure)).flatten(),
            is_veth: interface.kind == Kind::Veth,
            has_vlans: hops.has_vlans(interface),
        }
    }

    /// Returns the offloads that hide VLAN tags.
    pub(super) fn stripping(&self) -> Vec<Switch> {
        self.ports.iter().map(|name| (name.clone(), Offload::TagStripping)).collect()
    }

    /// Returns the offloads that merge packets for the program. The kernel does not merge on an
    /// interface with a program in generic mode, but on the devices below it.
    pub(super) fn merging(&self, mode: XdpMode) -> Vec<Switch> {
        let below = if mode == XdpMode::Generic { &self.below[..] } else { &[] };
        below.iter().map(|name| (name.clone(), Offload::Merging)).collect()
    }

    pub(super) fn is_mode_right(&self, mode: Option<XdpMode>) -> bool {
        self.not_native.is_none() || mode == Some(XdpMode::Generic)
    }

    /// Returns warnings for an interface in this state.
    pub(super) fn warnings(&self, name: &Arc<str>, state: &InterfaceState) -> Vec<Notice> {
        let interface = || Arc::clone(name);
        let InterfaceState::Attached(mode) = state else { return Vec::new() };
        let is_generic = *mode == XdpMode::Generic;
        let not_native = self.not_native.clone().filter(|_| is_generic);
        let not_native = not_native.map(|why| Notice::NotNative { interface: interface(), why });
        let whole =
            (self.is_veth && is_generic).then(|| Notice::VethMerges { interface: interface() });
        let tags = (self.is_veth && self.has_vlans && !is_generic)
            .then(|| Notice::VethTags { interface: interface() });
        not_native.into_iter().chain(whole).chain(tags).collect()
    }
}

/// Returns the reason why frames that native XDP sends would be lost on one of these interfaces.
fn lost_by<'a>(mut ways_out: impl Iterator<Item = &'a Interface>) -> Option<String> {
    let lost = ways_out.find(|out| loses(out.index))?;
    let name = &lost.name;
    Some(if lost.kind == Kind::Veth {
        format!(
            "packets leave by {name}, a veth whose other end takes none that XDP sends; give that end an XDP program that \
             passes everything (`ip link set dev PEER xdpdrv obj pass.o sec xdp`) and restart"
        )
    } else {
        format!("packets leave by {name}, which does not transmit what XDP sends")
    })
}
