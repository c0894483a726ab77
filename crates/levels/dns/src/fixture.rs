//! A zone for tests, and queries in wire format.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use equipoise_core::Generation;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::config::{NameConfig, NameServer, NodeConfig, StaticRecord, ZoneConfig};
use crate::now::Now;
use crate::respond::{Published, Responder};
use crate::stats::{Shard, Transport};
use crate::zone::file;
use crate::{
    DnsConfig, LoadTable, Mode, Name, NodeState, Reason, Snapshot, SnapshotInput, Standing, build,
};

pub(crate) const ZONE_FILE: &str = "
$TTL 300
text        IN TXT   \"hello\"
mail     60 IN MX    10 mx.cluster.example.
            IN MX    20 mx.other.example.
mx          IN A     192.0.2.25
            IN AAAA  2001:db8::25
svc         IN HTTPS 1 MX alpn=h2 port=8443
alias       IN CNAME text
far         IN CNAME www.other.example.
chain       IN CNAME alias
spread      IN CNAME www
lost        IN CNAME nowhere
ring        IN CNAME gnir
gnir        IN CNAME ring
*.wild      IN TXT   \"star\"
deep.er.est IN A     192.0.2.77
sub         IN NS    ns.sub
            IN NS    ns.other.example.
ns.sub      IN A     192.0.2.99
            IN AAAA  2001:db8::99
$ORIGIN more.cluster.example.
large       IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 1\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 2\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 3\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 4\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 5\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 6\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 7\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 8\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 9\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 A\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 B\"
            IN TXT   \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 C\"
";

pub(crate) fn name(text: &str) -> Name {
    Name::vec_from_str(text).unwrap()
}

pub(crate) fn wire(text: &str) -> Vec<u8> {
    name(text).into_octets()
}

fn balanced(text: &str, mode: Mode) -> NameConfig {
    NameConfig {
        name: name(text),
        mode,
        nodes: vec![0, 1, 2, 3],
        ttl: 60,
        ttl_draining: 10,
        ttl_heavy: 20,
        elastic: None,
        port: None,
        alpn: vec!["h2".into(), "http/1.1".into()],
    }
}

/// Records of a zone file without `$INCLUDE`.
pub(crate) fn records(text: &str, origin: &Name) -> Vec<StaticRecord> {
    file::read(Path::new("/a.zone"), origin, &|_| Ok(text.to_owned())).unwrap()
}

pub(crate) fn zone() -> ZoneConfig {
    let origin = name("cluster.example.");
    ZoneConfig {
        ttl: 3600,
        negative_ttl: 30,
        serial: 7,
        mailbox: name("hostmaster.cluster.example."),
        servers: vec![
            NameServer {
                name: name("ns1.cluster.example."),
                addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            },
            NameServer { name: name("ns2.other.example."), addresses: Vec::new() },
        ],
        nodes: (1..=4u8)
            .map(|n| NodeConfig {
                pool: "web".into(),
                name: format!("n{n}").into(),
                port: 8080,
                v4: vec![[192, 0, 2, 10 + n].into()],
                v6: if n < 3 {
                    vec![format!("2001:db8::1{n}").parse().unwrap()]
                } else {
                    Vec::new()
                },
            })
            .collect(),
        names: vec![
            balanced("cluster.example.", Mode::Pair),
            balanced("www.cluster.example.", Mode::Pair),
            balanced("one.cluster.example.", Mode::Single),
            balanced("all.cluster.example.", Mode::Ordered),
            balanced("_web._tcp.cluster.example.", Mode::Srv),
            balanced("app.cluster.example.", Mode::Https),
        ],
        records: records(ZONE_FILE, &origin),
        origin,
    }
}

pub(crate) fn config() -> DnsConfig {
    let mut config = DnsConfig { zones: vec![Arc::new(zone())], ..DnsConfig::default() };
    config.options.rate_limit.per_second = 0;
    config.options.identity = Some("node-a".into());
    config.options.version = Some("equipoise".into());
    config.options.cookies = crate::CookieSecrets::new(vec![crate::CookieSecret::new([7; 16])]);
    config
}

pub(crate) fn states(of: [(Standing, f64); 4]) -> Vec<Vec<NodeState>> {
    vec![of.map(|(standing, share)| NodeState { standing, share }).to_vec()]
}

pub(crate) fn snapshot(config: &DnsConfig, states: &[Vec<NodeState>]) -> Snapshot {
    let input = SnapshotInput {
        generation: Generation(1),
        config,
        states,
        threads: 1,
        before: None,
        secrets: (1, 2),
    };
    build(&input, &mut SmallRng::seed_from_u64(1))
}

/// The message path without sockets.
pub(crate) struct Server {
    pub(crate) published: Published,
    pub(crate) responder: Responder,
    pub(crate) stats: Shard,
    pub(crate) now: Now,
    pub(crate) client: IpAddr,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server::of(&config(), &[])
    }

    pub(crate) fn of(config: &DnsConfig, states: &[Vec<NodeState>]) -> Server {
        let snapshot = Arc::new(snapshot(config, states));
        Server {
            published: Published { snapshot, loads: Arc::new(LoadTable::default()) },
            responder: Responder::new(0, 3),
            stats: Shard::default(),
            now: Now { unix_seconds: 1_700_000_000, ticks: 1_000_000 },
            client: "198.51.100.7".parse().unwrap(),
        }
    }

    pub(crate) fn over(&mut self, transport: Transport, query: &[u8]) -> Result<Vec<u8>, Reason> {
        let mut out = vec![0xaa; if transport == Transport::Tcp { 65_535 } else { 1232 }];
        let from = (self.client, transport);
        let length = self.responder.respond(
            &self.published,
            &self.stats,
            from,
            self.now,
            query,
            &mut out,
        )?;
        out.truncate(length);
        Ok(out)
    }

    pub(crate) fn udp(&mut self, query: &[u8]) -> Vec<u8> {
        self.over(Transport::Udp, query).unwrap()
    }
}

/// Makes a query of class IN with RD.
pub(crate) fn query(text: &str, rtype: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(wire(text));
    bytes.extend(rtype.to_be_bytes());
    bytes.extend(1u16.to_be_bytes());
    bytes
}

/// Adds an OPT record with this payload size, TTL field and options.
pub(crate) fn with_opt(mut query: Vec<u8>, size: u16, ttl: u32, options: &[u8]) -> Vec<u8> {
    query[11] += 1;
    query.extend([0, 0, 41]);
    query.extend(size.to_be_bytes());
    query.extend(ttl.to_be_bytes());
    query.extend((options.len() as u16).to_be_bytes());
    query.extend(options);
    query
}

impl Server {
    pub(crate) fn stats_of_mode(&self, mode: Mode) -> u64 {
        self.figure(mode.word())
    }

    /// A counter of any kind by its name.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let figures = crate::stats::Figures::sum([&self.stats]);
        let all = [figures.modes, figures.drops, figures.rcodes, figures.types].concat();
        all.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    }
}
