//! Collects a zone's names from its configuration, and checks how they relate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use domain::base::Name as DomainName;
use domain::base::iana::Rtype;

use super::ZoneError;
use crate::config::{LISTED_NODES_MAX, NODES_MAX, Name, ZoneConfig};
use crate::message::code::{A, AAAA, CNAME, DNAME, NS, SOA};
use crate::message::tail::suffixes;

/// Records of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) ttl: u32,
    pub(super) bodies: Vec<Vec<u8>>,
}

/// Records of a name.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    pub(super) sets: BTreeMap<u16, Set>,
    /// Index in the zone's balanced names.
    pub(super) balanced: Option<usize>,
}

/// A zone's names, in lower case.
pub(super) type Names = BTreeMap<Vec<u8>, Collected>;

/// Maximum size of the records of one name and type: with the rest of the message, the maximum over
/// TCP.
const SET_BYTES_MAX: usize = 60_000;
/// Maximum number of records of a set within [`SET_BYTES_MAX`]: each has 12 bytes besides its data.
const SET_RECORDS_MAX: usize = SET_BYTES_MAX / 12;

/// Returns everything that prevents a zone from being served.
pub fn check(zone: &ZoneConfig) -> Vec<ZoneError> {
    collect(zone).1
}

/// A name as text.
pub(super) fn text(name: &[u8]) -> String {
    DomainName::from_slice(name)
        .map_or_else(|_| "?".to_owned(), |name| name.fmt_with_dot().to_string())
}

/// A name's bytes in lower case.
pub(super) fn lower(name: &Name) -> Vec<u8> {
    name.as_slice().to_ascii_lowercase()
}

/// Whether `name` is `parent` or below it, both in lower case.
pub(super) fn is_within(name: &[u8], parent: &[u8]) -> bool {
    name == parent || suffixes(name).any(|(_, suffix)| suffix == parent) || parent == [0]
}

/// Returns all names, and all errors.
pub(super) fn collect(zone: &ZoneConfig) -> (Names, Vec<ZoneError>) {
    let mut collector =
        Collector { zone, origin: lower(&zone.origin), names: Names::new(), errors: Vec::new() };
    collector.names.entry(collector.origin.clone()).or_default();
    collector.records();
    collector.servers();
    collector.start_of_authority();
    collector.balanced();
    collector.hosts();
    collector.relations();
    (collector.names, collector.errors)
}

struct Collector<'z> {
    zone: &'z ZoneConfig,
    origin: Vec<u8>,
    names: Names,
    errors: Vec<ZoneError>,
}

impl Collector<'_> {
    fn add(&mut self, name: Vec<u8>, rtype: u16, ttl: u32, body: Vec<u8>) {
        let set = self.names.entry(name).or_default().sets.entry(rtype).or_default();
        if set.bodies.is_empty() {
            set.ttl = ttl;
        }
        // RFC 2181, 5.2: a set has one TTL; takes the smallest.
        set.ttl = set.ttl.min(ttl);
        // A larger set is rejected in any case; the search for duplicates in it would be slow.
        if set.bodies.len() > SET_RECORDS_MAX || !set.bodies.contains(&body) {
            set.bodies.push(body);
        }
    }

    fn within(&mut self, name: &[u8]) -> bool {
        let within = is_within(name, &self.origin);
        if !within {
            let (name, zone) = (text(name), text(&self.origin));
            self.errors.push(ZoneError::OutOfZone { name, zone });
        }
        within
    }

    fn records(&mut self) {
        for record in &self.zone.records {
            let owner = lower(&record.owner);
            let rtype = record.rtype.to_int();
            if !self.within(&owner) {
                continue;
            }
            let hint = match rtype {
                DNAME => "accepted: a CNAME for each name",
                SOA if owner != self.origin => {
                    self.errors.push(ZoneError::SoaElsewhere(text(&owner)));
                    continue;
                }
                41 | 128..=255 => "accepted: records, which types of queries are not",
                // Without DNSSEC records, validating resolvers would reject every answer of a
                // signed zone.
                _ if matches!(
                    record.rtype,
                    Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3 | Rtype::NSEC3PARAM | Rtype::DNSKEY
                ) =>
                {
                    "accepted: an unsigned zone, for the present"
                }
                _ => "",
            };
            if !hint.is_empty() {
                let (name, rtype) = (text(&owner), record.rtype.to_string());
                self.errors.push(ZoneError::NotServed { name, rtype, hint });
                continue;
            }
            self.add(owner, rtype, record.ttl, record.body.clone());
        }
    }

    fn servers(&mut self) {
        let origin = self.origin.clone();
        if !self.zone.servers.is_empty() {
            // The configured servers replace those of the file.
            self.names.entry(origin.clone()).or_default().sets.remove(&NS);
        }
        for server in &self.zone.servers {
            self.add(origin.clone(), NS, self.zone.ttl, lower(&server.name));
            if is_within(&lower(&server.name), &origin) {
                self.addresses(&lower(&server.name), &server.addresses);
            }
        }
        let servers = self.names.get(&origin).and_then(|own| own.sets.get(&NS)).cloned();
        let Some(servers) = servers else {
            self.errors.push(ZoneError::NoServers(text(&origin)));
            return;
        };
        for server in servers.bodies.iter().map(|body| body.to_ascii_lowercase()) {
            let known = self
                .names
                .get(&server)
                .is_some_and(|name| name.sets.contains_key(&A) || name.sets.contains_key(&AAAA));
            let balanced = self.zone.names.iter().any(|name| lower(&name.name) == server);
            if is_within(&server, &origin) && !known && !balanced {
                self.errors.push(ZoneError::ServerWithoutAddress(text(&server)));
            }
        }
    }

    fn addresses(&mut self, name: &[u8], addresses: &[IpAddr]) {
        for address in addresses {
            match address {
                IpAddr::V4(v4) => self.add(name.to_vec(), A, self.zone.ttl, v4.octets().into()),
                IpAddr::V6(v6) => self.add(name.to_vec(), AAAA, self.zone.ttl, v6.octets().into()),
            }
        }
    }

    /// Makes the SOA record, unless the file has one.
    fn start_of_authority(&mut self) {
        let own = self.names.entry(self.origin.clone()).or_default();
        if own.sets.contains_key(&SOA) {
            return;
        }
        let Some(primary) = own.sets.get(&NS).and_then(|servers| servers.bodies.first()).cloned()
        else {
            return;
        };
        let mut body = primary;
        body.extend(lower(&self.zone.mailbox));
        // Values of RFC 1912, 2.2. Only secondaries use them, except the last one.
        for number in [self.zone.serial, 3600, 600, 1_209_600, self.zone.negative_ttl] {
            body.extend(number.to_be_bytes());
        }
        self.add(self.origin.clone(), SOA, self.zone.ttl, body);
    }

    fn balanced(&mut self) {
        for (place, config) in self.zone.names.iter().enumerate() {
            let name = lower(&config.name);
            if !self.within(&name) {
                continue;
            }
            let said = text(&name);
            if name.starts_with(b"\x01*") {
                self.errors.push(ZoneError::Wildcard(said));
                continue;
            }
            let mode = config.mode;
            let most = config.elastic.as_ref().map_or(0, |elastic| elastic.nodes_max);
            match config.nodes.len().max(most) {
                0 => self.errors.push(ZoneError::NoNodes(said.clone())),
                nodes if nodes > NODES_MAX || mode.gives_all() && nodes > LISTED_NODES_MAX => {
                    self.errors.push(ZoneError::TooManyNodes { name: said.clone(), nodes, mode });
                }
                _ => {}
            }
            let entry = self.names.entry(name).or_default();
            if entry.balanced.replace(place).is_some() {
                self.errors.push(ZoneError::Twice(said));
                continue;
            }
            let taken =
                super::balance::types_of(mode).iter().find(|rtype| entry.sets.contains_key(rtype));
            if let Some(rtype) = taken {
                let rtype = Rtype::from_int(*rtype).to_string();
                self.errors.push(ZoneError::Balanced { name: said, rtype });
            }
        }
    }

    /// Adds host names of the nodes that SRV and HTTPS records point to.
    fn hosts(&mut self) {
        let mut made: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for config in self.zone.names.iter().filter(|n| n.mode.has_hosts()) {
            for place in &config.nodes {
                let Some(node) = self.zone.nodes.get(*place) else { continue };
                let Some(host) = host_name(&node.name, &self.origin) else {
                    let (name, node) = (text(&lower(&config.name)), node.name.to_string());
                    self.errors.push(ZoneError::NodeName { name, node, mode: config.mode });
                    continue;
                };
                if let Some(first) = made.get(&host).map(|first| &self.zone.nodes[*first]) {
                    if (&first.v4, &first.v6) != (&node.v4, &node.v6) {
                        self.errors.push(ZoneError::NodeNames(node.name.to_string()));
                    }
                    continue;
                }
                made.insert(host, *place);
            }
        }
        for (host, place) in made {
            let node = &self.zone.nodes[place];
            let addresses = node.v4.iter().copied().map(IpAddr::from);
            let addresses: Vec<_> =
                addresses.chain(node.v6.iter().copied().map(IpAddr::from)).collect();
            // Addresses from the file or of a balanced name take precedence.
            let free = self.names.get(&host).is_none_or(|known| {
                known.balanced.is_none()
                    && !known.sets.contains_key(&A)
                    && !known.sets.contains_key(&AAAA)
            });
            if free {
                self.addresses(&host, &addresses);
            }
        }
    }

    fn relations(&mut self) {
        let cut_above = |names: &Names, name: &[u8], origin: &[u8]| {
            let above = suffixes(name).map(|(_, suffix)| suffix.to_vec()).filter(|s| s != origin);
            // Suffixes come longest first; the outermost delegation counts.
            above.filter(|s| names.get(s).is_some_and(|n| n.sets.contains_key(&NS))).last()
        };
        for (name, entry) in &self.names {
            let aliases = entry.sets.get(&CNAME).map_or(0, |set| set.bodies.len());
            if aliases > 1 {
                self.errors.push(ZoneError::Aliases(text(name)));
            }
            if aliases > 0
                && (entry.sets.len() > 1 || entry.balanced.is_some() || *name == self.origin)
            {
                self.errors.push(ZoneError::AliasBeside(text(name)));
            }
            if name.starts_with(b"\x01*") && entry.sets.contains_key(&NS) {
                self.errors.push(ZoneError::WildcardServers(text(name)));
            }
            if entry.balanced.is_some()
                && let Some(cut) = cut_above(&self.names, name, &self.origin)
            {
                self.errors.push(ZoneError::Delegated { name: text(name), cut: text(&cut) });
            }
            for (rtype, set) in &entry.sets {
                let bytes: usize = set.bodies.iter().map(|body| body.len() + 12).sum();
                if bytes > SET_BYTES_MAX {
                    let rtype = Rtype::from_int(*rtype).to_string();
                    self.errors.push(ZoneError::TooLarge { name: text(name), rtype, bytes });
                }
            }
        }
    }
}

/// Returns the host name of a node. `None`: the node's name cannot be a label of a host name (RFC
/// 1123, 2.1).
pub(super) fn host_name(node: &str, origin: &[u8]) -> Option<Vec<u8>> {
    let fits = (1..=63).contains(&node.len())
        && !node.starts_with('-')
        && !node.ends_with('-')
        && node.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let mut name = vec![node.len() as u8];
    name.extend(node.to_ascii_lowercase().bytes());
    name.extend(origin);
    (fits && name.len() <= 255).then_some(name)
}
