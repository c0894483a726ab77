//! Makes the DNS level's configuration, and checks what a zone's names, pools and files mean to each other.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use equipoise_dns::config::{
    DnsConfig, DnsOptions, NameConfig, NameServer, NodeConfig, StaticRecord, ZoneConfig,
};
use equipoise_dns::zone::{check, check_below, file as zone_file};
use equipoise_dns::{CookieSecrets, Mode, Name, RateLimit, ZoneError};
use equipoise_session::config::{BackendConfig, PoolConfig};

use super::Surroundings;
use super::build::chosen;
use super::labels;
use super::problem::Findings;
use super::tables::{DNS_MODE, dns_prefix};
use super::values::Values;

/// HTTPS's own port, which clients take unless told another (RFC 9460, 9.1).
const HTTPS_PORT: u16 = 443;

/// `[[dns]]` and `[nameserver]`.
pub(super) fn config(
    file: &Values,
    pools: &[PoolConfig],
    instance: &Arc<str>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> DnsConfig {
    let server = file.table("nameserver").expect("has a default: a test reads every one");
    let mut config =
        DnsConfig { options: options(server, instance, findings), ..DnsConfig::default() };
    for values in file.tables("dns") {
        for address in addresses::<SocketAddr>(values, "listen") {
            if !config.listen.contains(&address) {
                config.listen.push(address);
            }
        }
        let mut reading = Reading { file, values, pools, around, findings };
        let Some(zone) = reading.zone() else { continue };
        let same = |other: &Arc<ZoneConfig>| other.origin == zone.origin;
        if config.zones.iter().any(same) {
            let text = format!("\"{}\" is there twice; accepted: each zone once", zone.origin);
            findings.error(values.at("zone"), &values.path_of("zone"), text);
            continue;
        }
        config.zones.push(Arc::new(zone));
    }
    nested(file, &config.zones, findings);
    config
}

/// Names that belong into the table of a zone below.
fn nested(file: &Values, zones: &[Arc<ZoneConfig>], findings: &mut Findings<'_>) {
    let all: Vec<&ZoneConfig> = zones.iter().map(|zone| &**zone).collect();
    for values in file.tables("dns") {
        let origin = values.text("zone").and_then(|text| Name::vec_from_str(text).ok());
        let Some(zone) = all.iter().find(|zone| Some(&zone.origin) == origin.as_ref()) else {
            continue;
        };
        for wrong in check_below(zone, &all) {
            let text = wrong.to_string();
            findings.error(values.at("names"), &values.path_of("names"), text);
        }
    }
}

fn addresses<T: std::str::FromStr>(values: &Values, option: &str) -> Vec<T> {
    let texts = values.texts(option).unwrap_or_default();
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn options(server: &Values, instance: &Arc<str>, findings: &mut Findings<'_>) -> DnsOptions {
    let secrets = addresses(server, "cookie-secrets");
    let option = "cookie-secrets";
    if server.given(option) && !(1..=CookieSecrets::MAX).contains(&secrets.len()) {
        let text = format!("{} secrets; accepted: 1 to {}", secrets.len(), CookieSecrets::MAX);
        findings.error(server.at(option), &server.path_of(option), text);
    }
    let mut cookies = CookieSecrets::new(secrets);
    if !server.flag("cookies") && cookies.take().is_some() {
        let text = "has no effect: `cookies` is false".to_string();
        findings.warning(server.at(option), &server.path_of(option), text);
    }
    let exempt = server.texts("rate-limit-exempt").unwrap_or_default();
    DnsOptions {
        rate_limit: RateLimit {
            per_second: server.amount("rate-limit"),
            slip: server.amount("rate-limit-slip"),
            exempt: exempt.iter().filter_map(|text| dns_prefix(text)).collect(),
            ..RateLimit::default()
        },
        cookies,
        cookies_wanted: server.flag("cookies"),
        identity: Some(server.text("identity").map_or_else(|| Arc::clone(instance), Into::into)),
        version: server.text("version").map(Into::into),
        client_subnet: server.flag("client-subnet"),
        query_log: server.share("query-log"),
        heavy_share: server.share("heavy-share"),
        tcp_connections_max: server.amount("tcp-connections-max"),
        tcp_idle_timeout: server.duration("tcp-idle-timeout"),
    }
}

struct Reading<'r, 's> {
    file: &'r Values,
    values: &'r Values,
    pools: &'r [PoolConfig],
    around: &'r Surroundings<'r>,
    findings: &'r mut Findings<'s>,
}

impl Reading<'_, '_> {
    fn error(&mut self, values: &Values, option: &str, text: String) {
        self.findings.error(values.at(option), &values.path_of(option), text);
    }

    fn zone(&mut self) -> Option<ZoneConfig> {
        let values = self.values;
        let origin = lower(Name::vec_from_str(values.text("zone")?).ok()?);
        let seconds = |option: &str| values.duration(option).as_secs() as u32;
        let mailbox = match values.text("mailbox") {
            Some(text) => self.name(values, "mailbox", text, &origin)?,
            None => below("hostmaster", &origin)?,
        };
        let mut zone = ZoneConfig {
            ttl: seconds("record-ttl"),
            negative_ttl: seconds("negative-ttl"),
            serial: values.amount("serial"),
            mailbox,
            servers: Vec::new(),
            nodes: Vec::new(),
            names: Vec::new(),
            records: self.records(&origin),
            origin,
        };
        self.filled(values, "listen");
        for node in values.tables("nodes") {
            self.filled(node, "addresses");
        }
        for server in values.tables("ns") {
            self.filled(server, "addresses");
            let Some(text) = server.text("name") else { continue };
            let Some(name) = self.name(server, "name", text, &zone.origin) else { continue };
            zone.servers.push(NameServer { name, addresses: addresses(server, "addresses") });
        }
        if values.given("pool") {
            let origin = zone.origin.clone();
            self.balanced(values, origin, &mut zone);
        }
        for values in values.tables("names") {
            let Some(text) = values.text("name") else { continue };
            let Some(name) = self.name(values, "name", text, &zone.origin) else { continue };
            self.balanced(values, name, &mut zone);
        }
        self.unused_nodes(&zone);
        // What could not be read is missing, and would only be reported twice.
        if !self.findings.has_error_below(&values.path) && !self.findings.has_error_on("pool") {
            for wrong in check(&zone) {
                self.place(&wrong);
            }
        }
        Some(zone)
    }

    /// A list that is given has something in it.
    fn filled(&mut self, values: &Values, option: &str) {
        if values.given(option) && values.texts(option).is_some_and(|texts| texts.is_empty()) {
            self.error(values, option, "an empty list; accepted: at least one".into());
        }
    }

    /// A name, which is below the zone's unless it ends with a dot.
    fn name(&mut self, values: &Values, option: &str, text: &str, origin: &Name) -> Option<Name> {
        let name = match text.ends_with('.') {
            true => Name::vec_from_str(text).ok(),
            false => below(text, origin),
        };
        if name.is_none() {
            let text =
                format!("\"{text}\" with the zone's name behind it is longer than 255 bytes");
            self.error(values, option, text + "; accepted: a shorter one");
        }
        name.map(lower)
    }

    fn records(&mut self, origin: &Name) -> Vec<StaticRecord> {
        let values = self.values;
        let Some(path) = values.text("zone-file") else { return Vec::new() };
        let wrong = match (self.around.read)(Path::new(path)) {
            Ok(text) => match zone_file::read(&text, origin) {
                Ok(records) => return records,
                Err(error) => format!("\"{path}\": {error}"),
            },
            Err(error) => format!("\"{path}\" cannot be read: {error}; accepted: a zone file"),
        };
        self.error(values, "zone-file", wrong);
        Vec::new()
    }

    /// Adds a balanced name, with the nodes that it needs.
    fn balanced(&mut self, values: &Values, name: Name, zone: &mut ZoneConfig) {
        let own = self.values;
        let from = if values.given("pool") { values } else { own };
        let Some(pool_name) = from.text("pool") else {
            let text = "does not say which pool, and the zone has no `pool`; accepted: the `name` of a pool";
            self.error(values, "pool", text.into());
            return;
        };
        let Some(pool) = self.pools.iter().find(|pool| &*pool.name == pool_name) else { return };
        let is_own = std::ptr::eq(values, own);
        let mode = match is_own {
            true => None,
            false => values.choice("mode", &DNS_MODE),
        };
        let mode = mode.unwrap_or_else(|| chosen(own, "mode", &DNS_MODE));
        let ttl = if is_own { None } else { values.duration_if_any("ttl") };
        if !is_own {
            self.filled(values, "backends");
            self.filled(values, "labels");
        }
        let backends = self.members(values, pool, is_own);
        let seconds = |option: &str| own.duration(option).as_secs() as u32;
        let nodes = backends.iter().map(|backend| node(own, pool, backend, zone)).collect();
        let first_port = backends.first().map_or(0, |backend| backend.address.port());
        let given_port = if is_own { None } else { values.number("port") };
        let port = given_port.and_then(|port| u16::try_from(port).ok()).unwrap_or(first_port);
        self.effects(values, is_own, mode, &backends, given_port.is_some());
        let alpn = if is_own { &[][..] } else { values.texts("alpn").unwrap_or_default() };
        zone.names.push(NameConfig {
            name,
            mode,
            nodes,
            ttl: ttl.map_or_else(|| seconds("ttl"), |ttl| ttl.as_secs() as u32),
            ttl_draining: seconds("ttl-draining"),
            ttl_heavy: seconds("ttl-heavy"),
            port: if mode == Mode::Https && given_port.is_none() { HTTPS_PORT } else { port },
            alpn: alpn.iter().map(|id| id.as_str().into()).collect(),
        });
    }

    fn members<'p>(
        &mut self,
        values: &Values,
        pool: &'p PoolConfig,
        all: bool,
    ) -> Vec<&'p BackendConfig> {
        let given = |option: &str| if all { None } else { values.texts(option) };
        if let Some(wanted) = given("labels") {
            return self.labelled(values, pool, wanted);
        }
        let Some(names) = given("backends") else { return pool.backends.iter().collect() };
        let mut members: Vec<&BackendConfig> = Vec::new();
        for wanted in names {
            let found = pool
                .backends
                .iter()
                .find(|b| *b.name == **wanted || b.address.to_string() == **wanted);
            match found {
                Some(backend) if members.iter().any(|known| known.name == backend.name) => {}
                Some(backend) => members.push(backend),
                None => {
                    let known: Vec<_> =
                        pool.backends.iter().map(|b| format!("`{}`", b.name)).collect();
                    let text = format!(
                        "pool \"{}\" has no backend `{wanted}`; there are {}",
                        pool.name,
                        known.join(", ")
                    );
                    self.error(values, "backends", text);
                }
            }
        }
        members
    }

    /// The pool's backends that have all labels.
    fn labelled<'p>(
        &mut self,
        values: &Values,
        pool: &'p PoolConfig,
        wanted: &[String],
    ) -> Vec<&'p BackendConfig> {
        labels::check(values, self.findings);
        if values.given("backends") {
            let text = "is given beside `backends`; accepted: one of the two";
            self.error(values, "labels", text.into());
        }
        let file = self.file;
        let of = |backend: &BackendConfig| labels::of_backend(file, &pool.name, &backend.name);
        let has_all = |backend: &&BackendConfig| labels::has_all(of(backend), wanted);
        let members: Vec<_> = pool.backends.iter().filter(has_all).collect();
        if members.is_empty() {
            let known: BTreeSet<_> =
                pool.backends.iter().flat_map(of).map(|label| format!("`{label}`")).collect();
            let known: Vec<_> = known.into_iter().collect();
            let among = match known.is_empty() {
                true => "none has any".to_owned(),
                false => format!("there are {}", known.join(", ")),
            };
            let text = format!("no backend of pool \"{}\" has all of them; {among}", pool.name);
            self.error(values, "labels", text);
        }
        members
    }

    fn effects(
        &mut self,
        values: &Values,
        is_own: bool,
        mode: Mode,
        backends: &[&BackendConfig],
        port: bool,
    ) {
        if is_own {
            return;
        }
        let mut without = |option: &str, modes: &str| {
            if values.given(option) {
                let text = format!("has no effect: only {modes} tells it");
                self.findings.warning(values.at(option), &values.path_of(option), text);
            }
        };
        if mode != Mode::Https {
            without("alpn", "mode \"https\"");
        }
        if !matches!(mode, Mode::Srv | Mode::Https) {
            without("port", "mode \"srv\" or \"https\"");
        }
        let ports =
            backends.iter().any(|backend| backend.address.port() != backends[0].address.port());
        if mode == Mode::Srv && !port && ports {
            let text = "is not given, and the pool's backends have different ports; accepted: one port for all".into();
            self.error(values, "port", text);
        }
    }

    /// `[[dns.nodes]]` tables of backends that no name is spread over.
    fn unused_nodes(&mut self, zone: &ZoneConfig) {
        for values in self.values.tables("nodes") {
            let Some(backend) = values.text("backend") else { continue };
            let pools = self.pools.iter().flat_map(|pool| &pool.backends);
            let mut named =
                pools.filter(|b| *b.name == *backend || b.address.to_string() == backend);
            let used = named.any(|b| zone.nodes.iter().any(|node| node.name == b.name));
            if !used && !self.findings.has_error_below(&self.values.path) {
                let text = format!("no name of this zone is spread over a backend `{backend}`");
                self.findings.warning(values.at("backend"), &values.path_of("backend"), text);
            }
        }
    }

    /// Says what is wrong with the zone where it comes from.
    fn place(&mut self, wrong: &ZoneError) {
        let values = self.values;
        let option = match wrong {
            ZoneError::NoServers(_) | ZoneError::ServerWithoutAddress(_) => "ns",
            ZoneError::NotServed { .. }
            | ZoneError::SoaElsewhere(_)
            | ZoneError::AliasBeside(_)
            | ZoneError::Aliases(_)
            | ZoneError::TooLarge { .. }
            | ZoneError::WildcardServers(_)
            | ZoneError::Balanced { .. }
            | ZoneError::Delegated { .. }
            | ZoneError::OutOfZone { .. }
                if values.given("zone-file") =>
            {
                "zone-file"
            }
            _ if values.given("names") => "names",
            _ => "zone",
        };
        self.error(values, option, wrong.to_string());
    }
}

/// The place of a backend among the zone's nodes.
fn node(own: &Values, pool: &PoolConfig, backend: &BackendConfig, zone: &mut ZoneConfig) -> usize {
    let known = |node: &NodeConfig| node.pool == pool.name && node.name == backend.name;
    if let Some(place) = zone.nodes.iter().position(known) {
        return place;
    }
    let said = own.tables("nodes").iter().find(|values| {
        values
            .text("backend")
            .is_some_and(|b| *backend.name == *b || backend.address.to_string() == b)
    });
    let all = said.map_or_else(|| vec![backend.address.ip()], |said| addresses(said, "addresses"));
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in all {
        match address.to_canonical() {
            IpAddr::V4(address) if !v4.contains(&address) => v4.push(address),
            IpAddr::V6(address) if !v6.contains(&address) => v6.push(address),
            _ => {}
        }
    }
    zone.nodes.push(NodeConfig {
        pool: Arc::clone(&pool.name),
        name: Arc::clone(&backend.name),
        v4,
        v6,
    });
    zone.nodes.len() - 1
}

fn below(text: &str, origin: &Name) -> Option<Name> {
    let dot = if origin.is_root() { "" } else { "." };
    Name::vec_from_str(&format!("{text}.{origin}{dot}")).ok()
}

fn lower(mut name: Name) -> Name {
    name.make_canonical();
    name
}
