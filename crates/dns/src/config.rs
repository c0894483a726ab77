//! What the DNS level is told to serve: validated option values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use domain::base::iana::Rtype;

use crate::cookie::CookieSecrets;
use crate::rate_limit::RateLimit;

/// A name of the DNS, absolute.
pub type Name = domain::base::Name<Vec<u8>>;

/// The most bytes that a datagram of ours has, and the default: no link that carries IPv6 fragments it.
pub const UDP_PAYLOAD_MAX: u16 = 1232;
/// Nodes of a name of a mode that gives all of them: as many A records as fit into a datagram.
pub const LISTED_NODES_MAX: usize = 64;
/// Nodes of a name, and of a zone.
pub const NODES_MAX: usize = 4096;

/// Everything that is served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DnsConfig {
    /// Where queries arrive, over UDP and TCP; every zone is answered on each.
    pub listen: Vec<SocketAddr>,
    /// No two of one name.
    pub zones: Vec<Arc<ZoneConfig>>,
    /// What holds for all of them.
    pub options: DnsOptions,
}

/// What holds for all zones.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsOptions {
    /// Responses over UDP that a prefix may be sent.
    pub rate_limit: RateLimit,
    /// Whether clients that send a cookie get one.
    pub cookies_wanted: bool,
    /// What server cookies are made with; `None`: a secret of this process's own.
    pub cookies: Option<CookieSecrets>,
    /// The answer to NSID, and to `id.server` of class CHAOS.
    pub identity: Option<Arc<str>>,
    /// The answer to `version.bind` of class CHAOS.
    pub version: Option<Arc<str>>,
    /// Whether a client's subnet, where a resolver sends it, is looked at in its stead.
    pub client_subnet: bool,
    /// The share of answers that is logged.
    pub query_log: f64,
    /// A resolver that brings this share of all load is heavy, and gets the shorter TTL.
    pub heavy_share: f64,
    /// TCP connections at a time.
    pub tcp_connections_max: usize,
    /// A connection without a whole query for this long is closed.
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
    /// Its name.
    pub origin: Name,
    /// Of its own records (SOA, NS, the nodes' host names), in seconds.
    pub ttl: u32,
    /// How long resolvers may keep that something does not exist, in seconds.
    pub negative_ttl: u32,
    /// SOA's serial number: of use where a secondary copies the zone.
    pub serial: u32,
    /// SOA's mailbox, its `@` a dot.
    pub mailbox: Name,
    /// Its name servers; the first is SOA's primary. Empty: the zone file has NS records.
    pub servers: Vec<NameServer>,
    /// Who its balanced names are spread over.
    pub nodes: Vec<NodeConfig>,
    /// Its balanced names.
    pub names: Vec<NameConfig>,
    /// What else it has.
    pub records: Vec<StaticRecord>,
}

/// A name server of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    /// Its name.
    pub name: Name,
    /// Required if the name is in the zone.
    pub addresses: Vec<IpAddr>,
}

/// A node: a backend of a pool, by its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name in the pool.
    pub name: Arc<str>,
    /// Where it listens: its SRV record's, of names that have no port for all.
    pub port: u16,
    /// Where clients reach it over IPv4.
    pub v4: Vec<Ipv4Addr>,
    /// The same over IPv6.
    pub v6: Vec<Ipv6Addr>,
}

impl NodeConfig {
    /// A backend that clients reach at these addresses, each once.
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

/// What a name has of a pool that grows and shrinks, beside the nodes that are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticNodes {
    /// The pool: a name over it may have no node at all for now.
    pub pool: Arc<str>,
    /// How many nodes the name may come to have, listed ones too.
    pub nodes_max: usize,
}

/// A name that is spread over nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NameConfig {
    /// In the zone, or the zone's own.
    pub name: Name,
    /// Which of the nodes an answer has.
    pub mode: Mode,
    /// Places in [`ZoneConfig::nodes`].
    pub nodes: Vec<usize>,
    /// The pool whose other backends are nodes of it, too, as they come and go. Who serves the zone puts them into `nodes`.
    pub elastic: Option<ElasticNodes>,
    /// In seconds, at most.
    pub ttl: u32,
    /// In seconds, while a node drains.
    pub ttl_draining: u32,
    /// In seconds, for heavy resolvers.
    pub ttl_heavy: u32,
    /// The port of all nodes. `None`: SRV tells each one's own, HTTPS 443.
    pub port: Option<u16>,
    /// HTTPS's protocols, such as `h2`.
    pub alpn: Vec<Arc<str>>,
}

/// Which of a name's nodes an answer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Two, weighted.
    #[default]
    Pair,
    /// One, weighted.
    Single,
    /// All, in weighted random order.
    Ordered,
    /// All, as SRV records with weights.
    Srv,
    /// All, as HTTPS records with distinct priorities, in weighted random order.
    Https,
}

impl Mode {
    /// Every mode, in the order of their numbers.
    pub const ALL: [Mode; 5] = [Mode::Pair, Mode::Single, Mode::Ordered, Mode::Srv, Mode::Https];

    /// As the configuration and metrics say it.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Pair => "pair",
            Mode::Single => "single",
            Mode::Ordered => "ordered",
            Mode::Srv => "srv",
            Mode::Https => "https",
        }
    }

    /// Whether an answer has all nodes.
    pub(crate) const fn gives_all(self) -> bool {
        matches!(self, Mode::Ordered | Mode::Srv | Mode::Https)
    }
}

/// A record of a zone file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRecord {
    /// Whose it is, in lower case.
    pub owner: Name,
    /// Its type.
    pub rtype: Rtype,
    /// In seconds.
    pub ttl: u32,
    /// As on the wire, names in full.
    pub body: Vec<u8>,
}
