//! Validated option values of the DNS level.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use domain::base::iana::Rtype;

use crate::cookie::CookieSecrets;
use crate::rate_limit::RateLimit;

/// An absolute DNS name.
pub type Name = domain::base::Name<Vec<u8>>;

/// Largest UDP response, bytes; also the EDNS payload size that we advertise. A datagram of this
/// size passes every IPv6 link without fragmentation.
pub const UDP_PAYLOAD_MAX: u16 = 1232;
/// Maximum number of nodes of a name in a mode that answers with all nodes: as many A records as
/// fit into a datagram.
pub const LISTED_NODES_MAX: usize = 64;
/// Maximum number of nodes of a name, and of a zone.
pub const NODES_MAX: usize = 4096;

/// The whole configuration of the DNS level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DnsConfig {
    /// Addresses that receive queries, over UDP and TCP. Every zone is answered on each address.
    pub listen: Vec<SocketAddr>,
    /// Zones; their names are distinct.
    pub zones: Vec<Arc<ZoneConfig>>,
    /// Options of all zones.
    pub options: DnsOptions,
}

/// Options of all zones.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsOptions {
    /// Limit on the UDP responses to one client prefix.
    pub rate_limit: RateLimit,
    /// Whether the server answers a client's cookie with a server cookie (RFC 7873).
    pub cookies_wanted: bool,
    /// Secrets of server cookies. `None`: each process makes a random secret.
    pub cookies: Option<CookieSecrets>,
    /// The answer to NSID, and to `id.server` of class CHAOS.
    pub identity: Option<Arc<str>>,
    /// The answer to `version.bind` of class CHAOS.
    pub version: Option<Arc<str>>,
    /// Whether an EDNS client subnet replaces the resolver's address as the source of load.
    pub client_subnet: bool,
    /// Fraction of answers that the query log records, 0 to 1.
    pub query_log: f64,
    /// A resolver with at least this fraction of all load is heavy; its answers have `ttl_heavy`.
    pub heavy_share: f64,
    /// Maximum number of open TCP connections.
    pub tcp_connections_max: usize,
    /// Timeout after which a TCP connection without a complete query is closed.
    pub tcp_idle_timeout: Duration,
}

impl Default for DnsOptions {
    fn default() -> Self {
        DnsOptions {
            rate_limit: RateLimit::default(),
            cookies_wanted: true,
            cookies: None,
            identity: None,
            version: None,
            client_subnet: true,
            query_log: 0.0,
            heavy_share: 0.02,
            tcp_connections_max: 1024,
            tcp_idle_timeout: Duration::from_secs(10),
        }
    }
}

/// A zone.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneConfig {
    /// Name of the zone.
    pub origin: Name,
    /// TTL of the zone's own records (SOA, NS, the nodes' host names), seconds.
    pub ttl: u32,
    /// TTL of negative answers, seconds.
    pub negative_ttl: u32,
    /// Serial number of the SOA record. Only secondaries use it.
    pub serial: u32,
    /// Mailbox of the SOA record, with a dot in place of `@`.
    pub mailbox: Name,
    /// Name servers; the first is the primary in the SOA record. Empty: the zone file has the NS
    /// records.
    pub servers: Vec<NameServer>,
    /// Nodes that its balanced names are spread over.
    pub nodes: Vec<NodeConfig>,
    /// Its balanced names.
    pub names: Vec<NameConfig>,
    /// Records of the zone file.
    pub records: Vec<StaticRecord>,
}

impl ZoneConfig {
    /// The labels of the zone's name, if `name` (in lower case, without a final dot) is in it.
    pub fn covers(&self, name: &str) -> Option<usize> {
        let name = Name::vec_from_str(name).ok()?;
        name.ends_with(&self.origin).then(|| self.origin.label_count())
    }

    /// The zone with TXT records for answers to challenges: name and text, of at most 255 bytes. A
    /// name with an alias has no other records.
    pub fn with_texts(&self, texts: &[(String, String)]) -> ZoneConfig {
        let mut zone = self.clone();
        for (name, text) in texts {
            let Ok(owner) = Name::vec_from_str(name) else { continue };
            let body = [&[text.len().min(255) as u8], &text.as_bytes()[..text.len().min(255)]];
            let body = body.concat();
            let is_alias = |it: &StaticRecord| it.owner == owner && it.rtype == Rtype::CNAME;
            if !self.records.iter().any(is_alias) {
                zone.records.push(StaticRecord {
                    owner,
                    rtype: Rtype::TXT,
                    ttl: CHALLENGE_TTL,
                    body,
                });
            }
        }
        zone
    }
}

/// TTL of answers to challenges, seconds: the next challenge has another answer.
const CHALLENGE_TTL: u32 = 1;

/// A name server of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    /// Its name.
    pub name: Name,
    /// Addresses; required if the name is inside the zone.
    pub addresses: Vec<IpAddr>,
}

/// A node: a backend of a pool, with the addresses that clients use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name in the pool.
    pub name: Arc<str>,
    /// Port that the node listens on. SRV records have it unless the name sets one port for all
    /// nodes.
    pub port: u16,
    /// IPv4 addresses that clients use.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses that clients use.
    pub v6: Vec<Ipv6Addr>,
}

impl NodeConfig {
    /// Makes a node. Duplicate addresses are dropped; IPv4-mapped IPv6 addresses count as IPv4.
    pub fn new(
        pool: Arc<str>,
        name: Arc<str>,
        port: u16,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> NodeConfig {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in addresses {
            match address.to_canonical() {
                IpAddr::V4(address) if !v4.contains(&address) => v4.push(address),
                IpAddr::V6(address) if !v6.contains(&address) => v6.push(address),
                _ => {}
            }
        }
        NodeConfig { pool, name, port, v4, v6 }
    }
}

/// Elastic pool of a name: its backends are nodes of the name, in addition to the listed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticNodes {
    /// Name of the pool. While it is empty, the name may have no nodes.
    pub pool: Arc<str>,
    /// Maximum number of nodes of the name, including the listed ones.
    pub nodes_max: usize,
}

/// A name that is spread over nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NameConfig {
    /// The name, in the zone or equal to the zone's name.
    pub name: Name,
    /// Selects the nodes of an answer.
    pub mode: Mode,
    /// Indices into [`ZoneConfig::nodes`].
    pub nodes: Vec<usize>,
    /// Elastic pool of the name. The caller that builds the snapshot appends its current backends
    /// to `nodes`.
    pub elastic: Option<ElasticNodes>,
    /// TTL, seconds.
    pub ttl: u32,
    /// Upper bound of the TTL while a node drains, seconds.
    pub ttl_draining: u32,
    /// TTL of answers to heavy resolvers, seconds.
    pub ttl_heavy: u32,
    /// Port of all nodes. `None`: SRV records have the port of each node, HTTPS records mean 443.
    pub port: Option<u16>,
    /// Protocols of HTTPS records (ALPN identifiers), such as `h2`.
    pub alpn: Vec<Arc<str>>,
}

/// Selects the nodes that an answer contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Two nodes, drawn by weight.
    #[default]
    Pair,
    /// One node, drawn by weight.
    Single,
    /// All nodes, in weighted random order.
    Ordered,
    /// All nodes, as SRV records with weights.
    Srv,
    /// All nodes, as HTTPS records with distinct priorities, in weighted random order.
    Https,
}

impl Mode {
    /// Name in the configuration and in metrics, mode and meaning of each, in the order of the
    /// variants.
    pub const CHOICES: [(&str, Mode, &str); 5] = [
        (
            "pair",
            Mode::Pair,
            "two backends, weighted: clients have a second one to fail over to, and the order does not matter, which \
             resolvers shuffle",
        ),
        ("single", Mode::Single, "one backend, weighted"),
        (
            "ordered",
            Mode::Ordered,
            "all backends in weighted random order; resolvers shuffle it, so that weights apply only to clients that query \
             directly",
        ),
        (
            "srv",
            Mode::Srv,
            "SRV records of all backends, with weights; over TCP if they do not fit in a datagram: 1232 bytes hold about \
             30",
        ),
        (
            "https",
            Mode::Https,
            "HTTPS records of all backends, with priorities in weighted random order; A and AAAA records as for `pair`",
        ),
    ];

    /// Every mode, in the order of its discriminant.
    pub const ALL: [Mode; Mode::CHOICES.len()] = {
        let mut all = [Mode::Pair; Mode::CHOICES.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = Mode::CHOICES[at].1;
            at += 1;
        }
        all
    };

    /// The mode's name in the configuration and in metrics.
    pub const fn word(self) -> &'static str {
        Mode::CHOICES[self as usize].0
    }

    /// Whether an answer has a port, and records with host names of nodes.
    pub const fn has_hosts(self) -> bool {
        matches!(self, Mode::Srv | Mode::Https)
    }

    /// Nodes that a client gets to choose from, where load decides which; `None` if all.
    pub(crate) const fn drawn(self) -> Option<u32> {
        match self {
            Mode::Single => Some(1),
            Mode::Pair => Some(2),
            Mode::Ordered | Mode::Srv | Mode::Https => None,
        }
    }

    /// Whether an answer contains all nodes.
    pub(crate) const fn gives_all(self) -> bool {
        self.drawn().is_none()
    }
}

/// A record of a zone file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRecord {
    /// Owner name, in lower case.
    pub owner: Name,
    /// Record type.
    pub rtype: Rtype,
    /// TTL, seconds.
    pub ttl: u32,
    /// Record data in wire format, without name compression.
    pub body: Vec<u8>,
}
