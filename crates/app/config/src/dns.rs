//! Builds the DNS level's configuration, and checks names, pools and zone files against each other.

mod balanced;
mod elastic;
mod zone;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use equipoise_dns::config::{DnsConfig, DnsOptions, ZoneConfig};
use equipoise_dns::zone::{ZoneTree, check_below};
use equipoise_dns::{CookieSecrets, Name, RateLimit};
use equipoise_session::config::PoolConfig;

use self::zone::Reading;
use super::Surroundings;
use super::problem::Findings;
use super::tables::{Discover, Dns, Elastic, File, Nameserver, Pool};
use super::text::prefixes;
use super::view::View;

/// Builds the configuration from `[[dns]]` and `[nameserver]`.
pub(super) fn config(
    file: View<'_, File>,
    pools: &[PoolConfig],
    instance: &Arc<str>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> DnsConfig {
    let options = options(file.get(File::NAMESERVER), instance, findings);
    let mut config = DnsConfig { options, ..DnsConfig::default() };
    let by_name = PoolsByName::of(file, pools);
    let (mut listens, mut origins) = (HashSet::new(), HashSet::new());
    for values in file.get(File::DNS) {
        for address in values.get(Dns::LISTEN).unwrap_or_default() {
            if listens.insert(address) {
                config.listen.push(address);
            }
        }
        let mut reading = Reading { file, by_name: &by_name, values, pools, around, findings };
        let Some(zone) = reading.zone() else { continue };
        if !origins.insert(zone.origin.clone()) {
            let text = format!("\"{}\" is listed twice; accepted: each zone once", zone.origin);
            findings.error(values.at(Dns::ZONE), &values.path_of(Dns::ZONE), text);
            continue;
        }
        config.zones.push(Arc::new(zone));
    }
    nested(file, &config.zones, findings);
    elastic::check(file, findings);
    config
}

/// The pools of a file and their tables, by name.
struct PoolsByName<'p>(HashMap<&'p str, (&'p PoolConfig, Option<View<'p, Pool>>)>);

impl<'p> PoolsByName<'p> {
    /// Two pools with one name are an error; the first one is used.
    fn of(file: View<'p, File>, pools: &'p [PoolConfig]) -> PoolsByName<'p> {
        let tables = file.get(File::POOL).iter().rev();
        let tables: HashMap<&str, View<'_, Pool>> =
            tables.filter_map(|table| Some((table.get(Pool::NAME)?, table))).collect();
        let found = |pool: &'p PoolConfig| (pool, tables.get(&*pool.name).copied());
        PoolsByName(pools.iter().rev().map(|pool| (&*pool.name, found(pool))).collect())
    }

    fn get(&self, name: &str) -> Option<&'p PoolConfig> {
        self.0.get(name).map(|(pool, _)| *pool)
    }

    /// The `[pool.discover]` table of a pool.
    fn discover(&self, name: &str) -> Option<View<'p, Discover>> {
        self.0.get(name)?.1?.get(Pool::DISCOVER)
    }

    /// The `[pool.elastic]` table of a pool.
    fn elastic(&self, name: &str) -> Option<View<'p, Elastic>> {
        self.0.get(name)?.1?.get(Pool::ELASTIC)
    }
}

/// Reports names that belong in the table of a zone further down.
fn nested(file: View<'_, File>, zones: &[Arc<ZoneConfig>], findings: &mut Findings<'_>) {
    let by_origin: HashMap<&Name, &ZoneConfig> =
        zones.iter().map(|zone| (&zone.origin, &**zone)).collect();
    let tree = ZoneTree::new(by_origin.keys().copied());
    for values in file.get(File::DNS) {
        let origin = values.get(Dns::ZONE).and_then(|text| Name::vec_from_str(text).ok());
        let Some(zone) = origin.and_then(|origin| by_origin.get(&lower(origin))) else { continue };
        for wrong in check_below(zone, &tree) {
            let text = wrong.to_string();
            findings.error(values.at(Dns::NAMES), &values.path_of(Dns::NAMES), text);
        }
    }
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
