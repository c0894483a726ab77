use std::fmt;

use crate::{Host, NetnsError, offload};

/// Connects two hosts by a veth pair: an interface on each, up, with all offloads off.
///
/// Without offloads, an XDP program sees packets as on the wire: with complete checksums, and no
/// segments larger than the MTU.
///
/// # Errors
/// A name is in use or longer than 15 characters.
pub fn veth(one: (&Host, &str), other: (&Host, &str)) -> Result<(), NetnsError> {
    let (host, name) = one;
    let (peer, peer_name) = other;
    let path = peer.path();
    host.ip(&format!("link add {name} type veth peer name {peer_name} netns {path}"))?;
    for (host, name) in [one, other] {
        offload::off(host, name)?;
        host.ip(&format!("link set {name} up"))?;
    }
    Ok(())
}

/// A bridge on a host, which connects other hosts.
pub struct Switch<'a> {
    host: &'a Host,
    bridge: String,
}

impl fmt::Debug for Switch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Switch({} on {})", self.bridge, self.host.name())
    }
}

impl<'a> Switch<'a> {
    /// Creates the bridge. `host` may have addresses on it, and thus be the router of this network.
    ///
    /// # Errors
    /// The name is in use or longer than 15 characters.
    pub fn new(host: &'a Host, bridge: &str) -> Result<Switch<'a>, NetnsError> {
        // Multicast snooping would block neighbour discovery until a querier appears.
        host.ip(&format!(
            "link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        ))?;
        host.ip(&format!("link set {bridge} up"))?;
        Ok(Switch { host, bridge: bridge.to_owned() })
    }

    /// Refers to an existing bridge.
    pub fn on(host: &'a Host, bridge: &str) -> Switch<'a> {
        Switch { host, bridge: bridge.to_owned() }
    }

    /// Connects `host` to the bridge with a new interface. The bridge port is named after host and
    /// interface.
    ///
    /// # Errors
    /// As [`veth`].
    pub fn plug(&self, host: &Host, interface: &str) -> Result<(), NetnsError> {
        let port = format!("{}-{interface}", host.name());
        veth((host, interface), (self.host, &port))?;
        // A veth interface accepts packets that its peer's XDP program returns or redirects only if
        // it has a program itself.
        self.host.pass_everything(&port)?;
        self.host.ip(&format!("link set {port} master {}", self.bridge)).map(drop)
    }
}
