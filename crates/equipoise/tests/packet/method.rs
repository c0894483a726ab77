//! The forwarding methods as a table.

use std::net::{IpAddr, SocketAddr};

use equipoise_testkit::netns::Site;

/// A forwarding method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) forward: &'static str,
    pub(crate) vip_v6: bool,
    pub(crate) backend_v6: bool,
    /// Bytes that the method adds to the client's packet.
    pub(crate) overhead: u16,
    /// Last part of its VIP's address.
    pub(crate) number: u8,
}

const fn method(
    name: &'static str,
    forward: &'static str,
    (vip_v6, backend_v6): (bool, bool),
    overhead: u16,
    number: u8,
) -> Method {
    Method { name, forward, vip_v6, backend_v6, overhead, number }
}

pub(crate) const NAT: Method = method("nat, IPv4", "nat", (false, false), 0, 10);
pub(crate) const NAT6: Method = method("nat, IPv6", "nat", (true, true), 0, 11);
pub(crate) const FULL_NAT: Method = method("full-nat, IPv4", "full-nat", (false, false), 0, 22);
pub(crate) const FULL_NAT6: Method = method("full-nat, IPv6", "full-nat", (true, true), 0, 23);
pub(crate) const DIRECT: Method =
    method("direct-routing, IPv4", "direct-routing", (false, false), 0, 12);
pub(crate) const DIRECT6: Method =
    method("direct-routing, IPv6", "direct-routing", (true, true), 0, 13);
pub(crate) const IPIP: Method = method("tunnel, IPIP", "tunnel", (false, false), 20, 14);
pub(crate) const IP6IP6: Method = method("tunnel, IP6IP6", "tunnel", (true, true), 40, 15);
pub(crate) const SIX_IN_4: Method = method("tunnel, 6in4", "tunnel", (true, false), 20, 16);
pub(crate) const FOUR_IN_6: Method = method("tunnel, 4in6", "tunnel", (false, true), 40, 17);
pub(crate) const GUE: Method = method("gue, IPv4", "gue", (false, false), 28, 18);
pub(crate) const GUE6: Method = method("gue, IPv6", "gue", (true, true), 48, 19);
pub(crate) const GUE_6_IN_4: Method = method("gue, IPv6 in IPv4", "gue", (true, false), 28, 20);
pub(crate) const GUE_4_IN_6: Method = method("gue, IPv4 in IPv6", "gue", (false, true), 48, 21);

pub(crate) const ALL: [Method; 12] = [
    NAT, NAT6, DIRECT, DIRECT6, IPIP, IP6IP6, SIX_IN_4, FOUR_IN_6, GUE, GUE6, GUE_6_IN_4,
    GUE_4_IN_6,
];

/// The services of the backends, each with its own port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// HTTP of the sample backend.
    Web,
    /// Lines of the sample backend.
    Lines,
    /// `iperf3 -s`: its connections come in pairs, which must reach the same backend.
    Iperf,
}

impl Service {
    /// The port at which backends serve it.
    pub(crate) fn port(self) -> u16 {
        match self {
            Service::Web => 80,
            Service::Lines => 7000,
            Service::Iperf => 5201,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Service::Web => "web",
            Service::Lines => "lines",
            Service::Iperf => "iperf",
        }
    }

    fn health(self) -> &'static str {
        match self {
            Service::Web => {
                "{ http = \"/healthz\", interval = \"200ms\", timeout = \"2s\", rise = 1, fall = 3 }"
            }
            Service::Lines => {
                "{ tcp = true, interval = \"200ms\", timeout = \"2s\", rise = 1, fall = 3 }"
            }
            // iperf3 would take a check for a client.
            Service::Iperf => "false",
        }
    }
}

impl Method {
    /// Whether the balancer rewrites the destination; otherwise backends have the VIP themselves.
    pub(crate) fn translates(self) -> bool {
        matches!(self.forward, "nat" | "full-nat")
    }

    /// Whether backends need `equipoise decap`.
    pub(crate) fn encapsulates(self) -> bool {
        matches!(self.forward, "tunnel" | "gue")
    }

    pub(crate) fn vip_address(self) -> IpAddr {
        Site::vip(self.number, self.vip_v6)
    }

    /// The address for clients. With nat the port differs from the backends' port, because it can.
    pub(crate) fn vip(self, service: Service) -> SocketAddr {
        let port = service.port() + if self.translates() { 1000 } else { 0 };
        SocketAddr::new(self.vip_address(), port)
    }

    pub(crate) fn pool(self, service: Service) -> String {
        format!("{}-{}", service.name(), self.number)
    }

    /// The pool and the VIP in a configuration file.
    pub(crate) fn config(self, service: Service, site: &Site, more: &str) -> String {
        let backends = (0..site.backends.len()).collect::<Vec<_>>();
        self.config_of(service, site, &backends, more)
    }

    /// The same with only these backends.
    pub(crate) fn config_of(
        self,
        service: Service,
        site: &Site,
        backends: &[usize],
        more: &str,
    ) -> String {
        let backend = |index: &usize| {
            let address = site.backend_address(*index, self.backend_v6);
            let address = SocketAddr::new(address, service.port());
            format!("{{ name = \"backend-{}\", address = \"{address}\" }}", index + 1)
        };
        let backends = backends.iter().map(backend).collect::<Vec<_>>().join(", ");
        let key = if service == Service::Iperf { "key = \"source-address\"\n" } else { "" };
        let health = match service.health() {
            "false" => String::new(),
            health => format!("health = {health}\n"),
        };
        format!(
            "\n[[pool]]\nname = \"{pool}\"\nbackends = [{backends}]\n{health}\n\
             [[packet]]\nvip = \"{vip}/tcp\"\ninterface = \"eth0\"\nforward = \"{forward}\"\n\
             pool = \"{pool}\"\n{key}{more}",
            pool = self.pool(service),
            vip = self.vip(service),
            forward = self.forward,
        )
    }
}
