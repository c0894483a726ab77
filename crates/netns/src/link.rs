use std::fmt;

use crate::{Host, NetnsError, offload};

/// Joins two hosts by a veth pair: an interface on each, up, with all offloads off.
///
/// Off, because an XDP program sees packets as they are on the wire only without them: whole checksums, no segments
/// that are larger than the MTU.
///
/// # Errors
/// A name is in use, or too long (15 characters).
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

/// A bridge on a host, into which others are plugged.
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
    /// Makes the bridge; `host` may have addresses on it, and so be the router of this network.
    ///
    /// # Errors
    /// The name is in use, or too long (15 characters).
    pub fn new(host: &'a Host, bridge: &str) -> Result<Switch<'a>, NetnsError> {
        // Snooping would hold back neighbour discovery until a querier is heard.
        host.ip(&format!(
            "link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        ))?;
        host.ip(&format!("link set {bridge} up"))?;
        Ok(Switch { host, bridge: bridge.to_owned() })
    }

    /// One that was made before.
    pub fn on(host: &'a Host, bridge: &str) -> Switch<'a> {
        Switch { host, bridge: bridge.to_owned() }
    }

    /// Gives `host` an interface on this network. The port on the switch has the name of the host and interface.
    ///
    /// # Errors
    /// As [`veth`].
    pub fn plug(&self, host: &Host, interface: &str) -> Result<(), NetnsError> {
        let port = format!("{}-{interface}", host.name());
        veth((host, interface), (self.host, &port))?;
        // A veth takes what an XDP program on its peer sends back or redirects only if it has a program itself.
        self.host.pass_everything(&port)?;
        self.host.ip(&format!("link set {port} master {}", self.bridge)).map(drop)
    }
}
