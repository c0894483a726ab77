//! Reads links, routes and neighbours from the kernel.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::next_hops::{Interface, Kind, Neighbour, Network, Route};

/// A socket for requests.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens it in this thread's network namespace.
    pub(super) fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends a request and calls `each` with every answer.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.header.length as usize];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let one_answer = flags & (NLM_F_DUMP | NLM_F_ACK) == 0;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => {
                        each(inner);
                        if one_answer {
                            return Ok(());
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the messages of a datagram, up to the first unreadable one.
pub(super) fn messages(mut datagram: &[u8]) -> Vec<NetlinkMessage<RouteNetlinkMessage>> {
    let mut messages = Vec::new();
    while let Ok(message) = NetlinkMessage::deserialize(datagram) {
        // Each message begins at a multiple of four bytes (NLMSG_ALIGN).
        let length = (message.header.length as usize).next_multiple_of(4);
        messages.push(message);
        match datagram.get(length..) {
            Some(rest) if length > 0 && !rest.is_empty() => datagram = rest,
            _ => break,
        }
    }
    messages
}

impl Network for Netlink {
    fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let mut found = Vec::new();
        self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                found.push(interface(&link));
            }
        })?;
        Ok(found)
    }

    fn neighbours(&mut self) -> io::Result<Vec<Neighbour>> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            self.ask(RouteNetlinkMessage::GetNeighbour(message), NLM_F_DUMP, |answer| {
                if let RouteNetlinkMessage::NewNeighbour(entry) = answer {
                    found.extend(neighbour(&entry));
                }
            })?;
        }
        Ok(found)
    }

    fn route(&mut self, to: IpAddr) -> io::Result<Option<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        let mut found = None;
        let asked = self.ask(RouteNetlinkMessage::GetRoute(message), 0, |answer| {
            if let RouteNetlinkMessage::NewRoute(answer) = answer {
                found = route(&answer);
            }
        });
        match asked.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => Ok(found),
            Err((
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL),
                _,
            )) => Ok(None),
            Err((_, error)) => Err(error),
        }
    }

    /// Makes the kernel resolve an address, as if it sent a packet there: it sends a request if the
    /// address is unknown, or revalidates a stale entry (`NTF_USE`).
    fn kick(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = ifindex;
        message.header.state = NeighbourState::None;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.ask(RouteNetlinkMessage::NewNeighbour(message), flags, |_| {})
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn mac(bytes: &[u8]) -> Option<[u8; 6]> {
    bytes.try_into().ok()
}

fn interface(link: &LinkMessage) -> Interface {
    let mut found = Interface {
        index: link.header.index,
        name: String::new(),
        mac: [0; 6],
        mtu: u16::MAX.into(),
        up: link.header.flags.contains(LinkFlags::Up),
        controller: None,
        lower: None,
        kind: Kind::Other,
    };
    let mut is_elsewhere = false;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => found.mtu = *mtu,
            LinkAttribute::Controller(index) => found.controller = Some(*index),
            LinkAttribute::Link(index) => found.lower = Some(*index).filter(|index| *index > 0),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(details) => found.kind = kind(details),
            LinkAttribute::Address(bytes) => found.mac = mac(bytes).unwrap_or_default(),
            _ => {}
        }
    }
    // The peer of a veth is not below it.
    if is_elsewhere || found.kind == Kind::Veth {
        found.lower = None;
    }
    found
}

fn kind(details: &[LinkInfo]) -> Kind {
    let kind = details.iter().find_map(|detail| match detail {
        LinkInfo::Kind(InfoKind::Veth) => Some(Kind::Veth),
        LinkInfo::Kind(InfoKind::Vlan) => Some(Kind::Vlan),
        _ => None,
    });
    kind.unwrap_or_default()
}

/// Converts an entry with an address; a bridge's forwarding entries have none.
pub(super) fn neighbour(entry: &NeighbourMessage) -> Option<Neighbour> {
    let usable = matches!(
        entry.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let mut found = (None, None);
    for attribute in &entry.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                found.0 = Some(IpAddr::V4(*address));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                found.0 = Some(IpAddr::V6(*address));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) if usable => found.1 = mac(bytes),
            _ => {}
        }
    }
    let (address, mac) = found;
    let is_static = mac.is_some() && entry.header.state == NeighbourState::Permanent;
    Some(Neighbour { ifindex: entry.header.ifindex, address: address?, mac, is_static })
}

fn route(answer: &RouteMessage) -> Option<Route> {
    let mut found = Route {
        ifindex: 0,
        gateway: None,
        mtu: None,
        local: answer.header.kind == RouteType::Local,
    };
    for attribute in &answer.attributes {
        match attribute {
            RouteAttribute::Oif(index) => found.ifindex = *index,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => {
                found.gateway = Some((*address).into());
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(address))
            | RouteAttribute::Via(RouteVia::Inet6(address)) => {
                found.gateway = Some((*address).into());
            }
            RouteAttribute::Metrics(metrics) => {
                found.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    (found.ifindex > 0).then_some(found)
}
