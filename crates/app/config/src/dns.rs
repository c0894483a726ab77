//! Builds the DNS level's configuration, and checks names, pools and zone files against each other.

mod balanced;
mod elastic;
mod zone;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use equipoise_dns::config::{DnsConfig, DnsOptions, ZoneConfig};
use equipoise_dns::zone::{ZoneTree, check_below};
use equipoise_dns::{CookieSecrets, Name, RateLimit};
use equipoise_session::config::PoolConfig;

use self::zone::Reading;
use super::Surroundings;
use super::problem::Findings;
use super::tables::Nameserver;
use super::text::prefixes;
use super::values::Values;
use super::view::View;

/// Builds the configuration from `[[dns]]` and `[nameserver]`.
pub(super) fn config(
    file: &Values,
    pools: &[PoolConfig],
    instance: &Arc<str>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> DnsConfig {
    let server = file.table("nameserver").expect("has a default: a test reads every one");
    let mut config =
        DnsConfig { options: options(server.typed(), instance, findings), ..DnsConfig::default() };
    let by_name = PoolsByName::of(file, pools);
    let (mut listens, mut origins) = (HashSet::new(), HashSet::new());
    for values in file.tables("dns") {
        for address in addresses::<SocketAddr>(values, "listen") {
            if listens.insert(address) {
                config.listen.push(address);
            }
        }
        let mut reading = Reading { file, by_name: &by_name, values, pools, around, findings };
        let Some(zone) = reading.zone() else { continue };
        if !origins.insert(zone.origin.clone()) {
            let text = format!("\"{}\" is listed twice; accepted: each zone once", zone.origin);
            findings.error(values.at("zone"), &values.path_of("zone"), text);
            continue;
        }
        config.zones.push(Arc::new(zone));
    }
    nested(file, &config.zones, findings);
    elastic::check(file.typed(), findings);
    config
}

/// The pools of a file and their tables, by name.
struct PoolsByName<'p>(HashMap<&'p str, (&'p PoolConfig, Option<&'p Values>)>);

impl<'p> PoolsByName<'p> {
    /// Two pools with one name are an error; the first one is used.
    fn of(file: &'p Values, pools: &'p [PoolConfig]) -> PoolsByName<'p> {
        let tables = file.tables("pool").iter().rev();
        let tables: HashMap<&str, &Values> =
            tables.filter_map(|table| Some((table.text("name")?, table))).collect();
        let found = |pool: &'p PoolConfig| (pool, tables.get(&*pool.name).copied());
        PoolsByName(pools.iter().rev().map(|pool| (&*pool.name, found(pool))).collect())
    }

    fn get(&self, name: &str) -> Option<&'p PoolConfig> {
        self.0.get(name).map(|(pool, _)| *pool)
    }

    /// The `[pool.discover]` table of a pool.
    fn discover(&self, name: &str) -> Option<&'p Values> {
        self.0.get(name)?.1?.table("discover")
    }

    /// The `[pool.elastic]` table of a pool.
    fn elastic(&self, name: &str) -> Option<&'p Values> {
        self.0.get(name)?.1?.table("elastic")
    }
}

/// Reports names that belong in the table of a zone further down.
fn nested(file: &Values, zones: &[Arc<ZoneConfig>], findings: &mut Findings<'_>) {
    let by_origin: HashMap<&Name, &ZoneConfig> =
        zones.iter().map(|zone| (&zone.origin, &**zone)).collect();
    let tree = ZoneTree::new(by_origin.keys().copied());
    for values in file.tables("dns") {
        let origin = values.text("zone").and_then(|text| Name::vec_from_str(text).ok());
        let Some(zone) = origin.and_then(|origin| by_origin.get(&lower(origin))) else { continue };
        for wrong in check_below(zone, &tree) {
            let text = wrong.to_string();
            findings.error(values.at("names"), &values.path_of("names"), text);
        }
    }
}

fn addresses<T: std::str::FromStr>(values: &Values, option: &str) -> Vec<T> {
    let texts = values.texts(option).unwrap_or_default();
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn options(
    server: View<'_, Nameserver>,
    instance: &Arc<str>,
    findings: &mut Findings<'_>,
) -> DnsOptions {
    let option = Nameserver::COOKIE_SECRETS;
    let secrets = server.get(option).unwrap_or_default();
    if server.given(option) && !(1..=CookieSecrets::MAX).contains(&secrets.len()) {
        let text = format!("{} secrets; accepted: 1 to {}", secrets.len(), CookieSecrets::MAX);
        findings.error(server.at(option), &server.path_of(option), text);
    }
    let mut cookies = CookieSecrets::new(secrets);
    if !server.get(Nameserver::COOKIES) && cookies.take().is_some() {
        let text = "has no effect: `cookies` is false".to_string();
        findings.warning(server.at(option), &server.path_of(option), text);
    }
    DnsOptions {
        rate_limit: RateLimit {
            per_second: server.get(Nameserver::RATE_LIMIT),
            slip: server.get(Nameserver::RATE_LIMIT_SLIP),
            exempt: prefixes(server.get(Nameserver::RATE_LIMIT_EXEMPT)),
            ..RateLimit::default()
        },
        cookies,
        cookies_wanted: server.get(Nameserver::COOKIES),
        identity: Some(
            server.get(Nameserver::IDENTITY).map_or_else(|| Arc::clone(instance), Into::into),
        ),
        version: server.get(Nameserver::VERSION).map(Into::into),
        client_subnet: server.get(Nameserver::CLIENT_SUBNET),
        query_log: server.get(Nameserver::QUERY_LOG),
        heavy_share: server.get(Nameserver::HEAVY_SHARE),
        tcp_connections_max: server.get(Nameserver::TCP_CONNECTIONS_MAX),
        tcp_idle_timeout: server.get(Nameserver::TCP_IDLE_TIMEOUT),
    }
}
fn below(text: &str, origin: &Name) -> Option<Name> {
    let dot = if origin.is_root() { "" } else { "." };
    Name::vec_from_str(&format!("{text}.{origin}{dot}")).ok()
}

fn lower(mut name: Name) -> Name {
    name.make_canonical();
    name
}
