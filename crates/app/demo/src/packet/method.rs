//! The forwarding methods, each demonstrated with `curl`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, ensure};
use equipoise_netns::Site;

use crate::packet::stage::{HTTP_PORT, LINES_PORT, Stage};

/// A forwarding method with its own VIP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    forward: &'static str,
    what: &'static str,
    v6: bool,
    /// Last part of the VIP's address.
    number: u8,
    port: u16,
}

const NAT: &str = "the balancer rewrites the destination, and the source of replies";
const DIRECT: &str = "only the MAC address changes; backends have the VIP and answer the client";
const TUNNEL: &str = "IP in IP; backends unpack it, have the VIP and answer the client";
const GUE: &str = "the same in UDP";

/// The methods in the order of the demo.
pub(crate) const ALL: [Method; 8] = [
    Method { forward: "nat", what: NAT, v6: false, number: 10, port: 8080 },
    Method { forward: "nat", what: NAT, v6: true, number: 10, port: 8080 },
    Method { forward: "direct-routing", what: DIRECT, v6: false, number: 11, port: HTTP_PORT },
    Method { forward: "direct-routing", what: DIRECT, v6: true, number: 11, port: HTTP_PORT },
    TUNNELLED,
    Method { forward: "tunnel", what: TUNNEL, v6: true, number: 12, port: HTTP_PORT },
    Method { forward: "gue", what: GUE, v6: false, number: 13, port: HTTP_PORT },
    Method { forward: "gue", what: GUE, v6: true, number: 13, port: HTTP_PORT },
];

/// The method that is also shown while a backend drains.
pub(crate) const TUNNELLED: Method =
    Method { forward: "tunnel", what: TUNNEL, v6: false, number: 12, port: HTTP_PORT };

impl Method {
    pub(crate) fn title(&self) -> String {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        format!("{} over {family}: {}", self.forward, self.what)
    }

    fn name(&self) -> String {
        format!("{}-{}", self.forward, if self.v6 { "ipv6" } else { "ipv4" })
    }

    fn vip_address(&self) -> IpAddr {
        Site::vip(self.number, self.v6)
    }

    /// The VIP, if backends must have it as an address.
    pub(crate) fn hidden_address(&self) -> Option<IpAddr> {
        (self.forward != "nat").then(|| self.vip_address())
    }

    /// The address of the line service of the sample backends.
    pub(crate) fn lines(&self) -> SocketAddr {
        (self.vip_address(), LINES_PORT).into()
    }

    pub(crate) fn lines_pool(&self) -> String {
        format!("lines-{}", self.name())
    }

    /// The method's part of the configuration file.
    pub(crate) fn config(&self, site: &Site) -> String {
        let health = "{ http = \"/healthz\", interval = \"500ms\", rise = 1, fall = 2 }";
        self.pool(site, &self.name(), (self.port, HTTP_PORT), health)
    }

    /// The same for the line service.
    pub(crate) fn lines_config(&self, site: &Site) -> String {
        let health = "{ tcp = true, interval = \"500ms\", rise = 1, fall = 2 }";
        self.pool(site, &self.lines_pool(), (LINES_PORT, LINES_PORT), health)
    }

    fn pool(&self, site: &Site, name: &str, ports: (u16, u16), health: &str) -> String {
        let mut text = format!("\n[[pool]]\nname = \"{name}\"\nhealth = {health}\nbackends = [\n");
        for index in 0..site.backends.len() {
            let address = SocketAddr::new(site.backend_address(index, self.v6), ports.1);
            // Here and below: writing to a string cannot fail.
            let _ = writeln!(
                text,
                "    {{ name = \"backend-{}\", address = \"{address}\" }},",
                index + 1
            );
        }
        let vip = SocketAddr::new(self.vip_address(), ports.0);
        let forward = self.forward;
        let _ = write!(
            text,
            "]\n\n[[packet]]\nvip = \"{vip}/tcp\"\ninterface = \"eth0\"\nforward = \"{forward}\"\npool = \"{name}\"\n"
        );
        text
    }

    /// Sends `requests` requests, each on a new connection.
    pub(crate) fn show(&self, stage: &Stage, requests: usize) -> anyhow::Result<String> {
        let url = format!("http://{}/hello", SocketAddr::new(self.vip_address(), self.port));
        let client = stage.site().client_address(self.v6).to_string();
        let mut answers = BTreeMap::<String, usize>::new();
        for _ in 0..requests {
            let text = stage.curl(&url)?;
            let answer: serde_json::Value =
                serde_json::from_str(&text).with_context(|| format!("{url} answered `{text}`"))?;
            ensure!(
                answer["client"] == client.as_str(),
                "the backend saw another client than {client}: {text}"
            );
            *answers.entry(answer["backend"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
        }
        let shares = answers.iter().map(|(name, count)| format!("{name} {count}"));
        let shares = shares.collect::<Vec<_>>().join(", ");
        Ok(format!(
            "client$ curl {url}   ({requests} times)\n\
             answered by {shares}; each saw the client as {client}"
        ))
    }
}
