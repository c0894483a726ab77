use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Host, NetnsError, Switch, veth};

/// Size and layout of a [`Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteShape {
    /// Number of backends, up to 99.
    pub backends: usize,
    /// Whether the backends have a separate network behind the balancer.
    pub two_arms: bool,
}

/// A typical site of the packet level: clients behind a router that sends the VIPs to the balancer,
/// and backends.
///
/// ```text
/// client 198.51.100.2 --- router ===+=== balancer 192.0.2.2      one arm: one network, `lan`
///                                   +=== backend-1 192.0.2.11
///                                   +=== backend-2 192.0.2.12
///
/// client --- router === balancer === backend-1 198.18.1.11       two arms: `lan` and `back`
///                                +== backend-2 198.18.1.12
/// ```
///
/// Every host has `eth0`; a balancer with two arms has `eth1` on `back`. All MTUs are 1500. With
/// one arm, backends send replies from a VIP to the router, and all other replies to the balancer,
/// so that all forwarding methods work side by side. IPv6 is the same under 2001:db8:c:: (clients),
/// b:: (lan), d:: (back), f:: (VIPs).
#[derive(Debug)]
pub struct Site {
    /// Host of the clients.
    pub client: Host,
    /// Forwards packets, and has the bridge of `lan`.
    pub router: Host,
    /// Host of equipoise; forwards packets.
    pub balancer: Host,
    /// Has the bridge of `back`.
    back: Option<Host>,
    /// Hosts of the servers.
    pub backends: Vec<Host>,
    shape: SiteShape,
}

/// A network of the site. Host `n` has the addresses `v4 | n` and `v6 | n`.
#[derive(Clone, Copy)]
struct Network {
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

const CLIENTS: Network = network(Ipv4Addr::new(198, 51, 100, 0), 0xc);
const LAN: Network = network(Ipv4Addr::new(192, 0, 2, 0), 0xb);
const BACK: Network = network(Ipv4Addr::new(198, 18, 1, 0), 0xd);
const VIPS: Network = network(Ipv4Addr::new(203, 0, 113, 0), 0xf);

const fn network(v4: Ipv4Addr, third: u16) -> Network {
    Network { v4, v6: Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, 0) }
}

const ROUTER: u8 = 1;
const BALANCER: u8 = 2;
const CLIENT: u8 = 2;
const FIRST_BACKEND: u8 = 11;

/// Routing table of replies from a VIP.
const VIP_TABLE: u32 = 100;

impl Network {
    fn host(self, number: u8, v6: bool) -> IpAddr {
        if v6 {
            (self.v6 | Ipv6Addr::from(u128::from(number))).into()
        } else {
            (self.v4 | Ipv4Addr::from(u32::from(number))).into()
        }
    }

    fn prefix(self, v6: bool) -> String {
        if v6 { format!("{}/64", self.v6) } else { format!("{}/24", self.v4) }
    }

    fn give(self, host: &Host, interface: &str, number: u8) -> Result<(), NetnsError> {
        host.address(interface, self.host(number, false), 24)?;
        host.address(interface, self.host(number, true), 64)
    }
}

impl Site {
    /// Builds a site, in about a tenth of a second.
    ///
    /// # Errors
    /// The process lacks privileges, the kernel lacks a feature, or `ip` is not installed.
    pub fn new(shape: SiteShape) -> Result<Site, NetnsError> {
        let backends = (1..=shape.backends).map(|n| Host::new(&format!("backend-{n}")));
        let site = Site {
            client: Host::new("client")?,
            router: Host::new("router")?,
            balancer: Host::new("balancer")?,
            back: shape.two_arms.then(|| Host::new("back")).transpose()?,
            backends: backends.collect::<Result<_, _>>()?,
            shape,
        };
        site.set_up_front()?;
        site.set_up_backends()?;
        Ok(site)
    }

    /// Sets up client, router and balancer.
    fn set_up_front(&self) -> Result<(), NetnsError> {
        veth((&self.client, "eth0"), (&self.router, "clients"))?;
        CLIENTS.give(&self.client, "eth0", CLIENT)?;
        CLIENTS.give(&self.router, "clients", ROUTER)?;
        let lan = Switch::new(&self.router, "lan")?;
        LAN.give(&self.router, "lan", ROUTER)?;
        lan.plug(&self.balancer, "eth0")?;
        LAN.give(&self.balancer, "eth0", BALANCER)?;
        for host in [&self.router, &self.balancer] {
            host.forward()?;
            // An ICMP redirect would make the client bypass the router.
            host.sysctl("net/ipv4/conf/all/send_redirects", "0")?;
        }
        for v6 in [false, true] {
            self.client.route("default", CLIENTS.host(ROUTER, v6))?;
            self.balancer.route("default", LAN.host(ROUTER, v6))?;
            self.router.route(&VIPS.prefix(v6), LAN.host(BALANCER, v6))?;
            if self.shape.two_arms {
                self.router.route(&BACK.prefix(v6), LAN.host(BALANCER, v6))?;
            }
        }
        Ok(())
    }

    fn set_up_backends(&self) -> Result<(), NetnsError> {
        let (switch, network) = match &self.back {
            Some(back) => {
                let switch = Switch::new(back, "back")?;
                switch.plug(&self.balancer, "eth1")?;
                BACK.give(&self.balancer, "eth1", BALANCER)?;
                (switch, BACK)
            }
            None => (Switch::on(&self.router, "lan"), LAN),
        };
        for (number, backend) in (FIRST_BACKEND..).zip(&self.backends) {
            switch.plug(backend, "eth0")?;
            network.give(backend, "eth0", number)?;
            for v6 in [false, true] {
                backend.route("default", network.host(BALANCER, v6))?;
                if !self.shape.two_arms {
                    let (family, vips) = (if v6 { "-6" } else { "-4" }, VIPS.prefix(v6));
                    backend.ip(&format!("{family} rule add from {vips} lookup {VIP_TABLE}"))?;
                    let router = network.host(ROUTER, v6);
                    backend.route(&format!("default table {VIP_TABLE}"), router)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the client's address.
    pub fn client_address(&self, v6: bool) -> IpAddr {
        CLIENTS.host(CLIENT, v6)
    }

    /// Returns the router's address on `lan`.
    pub fn router_address(&self, v6: bool) -> IpAddr {
        LAN.host(ROUTER, v6)
    }

    /// Returns the balancer's address on `lan`.
    pub fn balancer_address(&self, v6: bool) -> IpAddr {
        LAN.host(BALANCER, v6)
    }

    /// Returns the address of backend `index` (from 0).
    pub fn backend_address(&self, index: usize, v6: bool) -> IpAddr {
        let network = if self.shape.two_arms { BACK } else { LAN };
        network.host(FIRST_BACKEND + index as u8, v6)
    }

    /// Returns the address of a VIP, for `number` from 1 to 254. It is routed to the balancer, and
    /// no interface has it.
    pub fn vip(number: u8, v6: bool) -> IpAddr {
        VIPS.host(number, v6)
    }
}
