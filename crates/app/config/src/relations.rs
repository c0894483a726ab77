//! Checks options against each other: names that must be unique or exist, addresses that clash,
//! options that exclude each other or have no effect.

mod elastic;
mod pool;
mod pool_users;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use equipoise_session::config::Protocol;

use super::place::is_unix_socket;
use super::problem::{Findings, hint};
use super::text::ApiListen;
use super::users::{Users, protocol_of, routes, sni_routes};
use super::values::Values;
use super::{Surroundings, access_log, dispatch, doors, health, limits, pool_tls, slice};

/// The tables that use pools.
const LEVELS: [&str; 4] = ["session", "dispatch", "packet", "dns"];

/// Checks the whole file.
pub(super) fn check(file: &Values, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let (pools, sessions) = (file.tables("pool"), file.tables("session"));
    let doors = || sessions.iter().chain(file.tables("dispatch"));
    let zones = file.tables("dns");
    let served = LEVELS.into_iter().chain(["slice"]).any(|level| file.given(level));
    // Members of a cluster may serve nothing: agents report, controllers plan.
    if !served && doors().next().is_none() && !file.given("cluster") {
        let what = match pools.is_empty() {
            true => "no front door, pool or zone, so this file configures nothing",
            false => "no front door, so nothing is served",
        };
        let text = format!(
            "{what}; add a [[session]], [[dispatch]], [[packet]], [[dns]] or [[slice]] table"
        );
        findings.warning(0, "session", text);
    }
    for callers in ["token", "client"] {
        let callers = file.table("api").map(|api| api.tables(callers)).unwrap_or_default();
        unique(callers, "name", findings);
    }
    unique(pools, "name", findings);
    unique(sessions, "name", findings);
    unique(file.tables("slice"), "name", findings);
    access_log::check(file.typed(), findings);
    dispatch::check(file.typed(), findings);
    slice::check(file, around, findings);
    listen_addresses(file, findings);
    for door in sessions {
        front_door(door, findings);
        doors::check(door.typed(), findings);
        if !file.given("cluster") {
            limits::alone(door, findings);
        }
    }
    let known: HashSet<&str> = pools.iter().filter_map(|pool| pool.text("name")).collect();
    let names = zones.iter().flat_map(|zone| std::iter::once(zone).chain(zone.tables("names")));
    let routes = doors().flat_map(|door| sni_routes(door).iter().chain(routes(door)));
    for user in doors().chain(routes).chain(file.tables("packet")).chain(names) {
        named_pool(user, pools, &known, findings);
    }
    let users = Users::of(file);
    for pool in pools {
        check_pool(pool, file, &users, findings);
    }
}

/// Checks a pool against its users and the rest of the file.
fn check_pool(pool: &Values, file: &Values, users: &Users<'_>, findings: &mut Findings<'_>) {
    pool::backends(pool.typed(), findings);
    if let Some(elastic) = pool.table("elastic") {
        unique(elastic.tables("sizes"), "name", findings);
        elastic::reachable(file.typed(), elastic.typed(), findings);
        elastic::declaring(file.typed(), elastic.typed(), findings);
    }
    health::check(pool.typed(), findings);
    // Without its name, the users of a pool are not known.
    let Some(name) = pool.text("name") else {
        pool::scheduling(pool.typed(), findings);
        return;
    };
    let users = &users.of_pool(name);
    if let Some(elastic) =
        pool.table("elastic").filter(|it| !elastic::is_awaited(file.typed(), it.typed()))
    {
        elastic::targets(pool.typed(), elastic.typed(), users, findings);
        elastic::clocks(elastic.typed(), findings);
    }
    pool_tls::check(pool.typed(), users, findings);
    pool_users::unix_sockets(pool, users, findings);
    pool_users::learnt_limits(pool, users, findings);
    pool_users::unlimited(pool, users, findings);
    pool_users::backups(pool, users, findings);
    if users.doors.is_empty() && users.packet {
        pool_users::without_sessions(pool, findings);
    } else if !users.doors.is_empty() || !users.dns {
        pool::scheduling(pool.typed(), findings);
        pool_users::front_doors_of(pool, users, findings);
    }
}

/// Refuses two elements with the same text for an option.
fn unique(elements: &[Values], option: &str, findings: &mut Findings<'_>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for element in elements {
        let Some(text) = element.text(option) else { continue };
        let at = element.at(option);
        let first = *seen.entry(text).or_insert(at);
        if first != at {
            let line = findings.line(first);
            let text =
                format!("\"{text}\" is in use, on line {line}; accepted: one that is unique");
            findings.error(at, &element.path_of(option), text);
        }
    }
}

/// Refuses listen addresses that clash. UDP and TCP ports are separate; port 0 is a different port
/// each time.
fn listen_addresses(file: &Values, findings: &mut Findings<'_>) {
    let mut taken: BTreeMap<(bool, SocketAddr), String> = BTreeMap::new();
    let mut take = |datagrams: bool, address: SocketAddr, values: &Values| {
        if address.port() == 0 {
            return;
        }
        if let Some(user) = taken.get(&(datagrams, address)) {
            let text = format!("\"{address}\" is in use, {user}; accepted: a free address or port");
            findings.error(values.at("listen"), &values.path_of("listen"), text);
            return;
        }
        let user = match values.given("listen") {
            true => format!("on line {}", findings.line(values.at("listen"))),
            false => format!("by the default of {}", values.path_of("listen")),
        };
        taken.insert((datagrams, address), user);
    };
    if let Some(api) = file.table("api")
        && let Some(ApiListen(Some(address))) = api.parsed("listen")
    {
        take(false, address, api);
    }
    for door in file.tables("session").iter().chain(file.tables("dispatch")) {
        let protocol = protocol_of(door);
        let Some(protocol) = protocol else { continue };
        for address in doors::listen_addresses(door) {
            take(protocol == Protocol::Udp, address, door);
        }
    }
    let mut served: HashSet<SocketAddr> = HashSet::new();
    for zone in file.tables("dns") {
        for address in
            zone.texts("listen").unwrap_or_default().iter().filter_map(|t| t.parse().ok())
        {
            // Zones may share addresses.
            if served.insert(address) {
                take(true, address, zone);
                take(false, address, zone);
            }
        }
    }
}

fn front_door(door: &Values, findings: &mut Findings<'_>) {
    if door.texts("listen").is_some_and(<[String]>::is_empty) {
        let text = "an empty list; accepted: one address or more".to_string();
        findings.error(door.at("listen"), &door.path_of("listen"), text);
    }
    if let Some(protocol) = door.choice("protocol") {
        if protocol != Protocol::Http {
            without_http(door, "this front door does not speak HTTP", findings);
        }
        let reads_a_head = match protocol {
            Protocol::Http => true,
            Protocol::Tcp => door.given("tls") || door.given("sni") || door.flag("accept-proxy"),
            Protocol::Udp => false,
        };
        if !reads_a_head && door.given("header-timeout") {
            let text = "has no effect: this front door reads no head, no TLS and no PROXY protocol";
            findings.warning(
                door.at("header-timeout"),
                &door.path_of("header-timeout"),
                text.into(),
            );
        }
        if protocol == Protocol::Udp && door.given("tls") {
            let text = "stated, but TLS needs a stream; accepted with http and tcp";
            findings.error(door.at("tls"), &door.path_of("tls"), text.into());
        }
        if protocol != Protocol::Udp && door.given("responses") {
            let text = "has no effect: this front door does not speak udp".to_string();
            findings.warning(door.at("responses"), &door.path_of("responses"), text);
        }
        if protocol == Protocol::Udp && door.flag("accept-proxy") {
            let text =
                "true, but datagrams carry no PROXY protocol header; accepted with udp: false";
            findings.error(door.at("accept-proxy"), &door.path_of("accept-proxy"), text.into());
        } else if door.flag("accept-proxy") && door.texts("trusted").is_none_or(<[_]>::is_empty) {
            let text = "true, but no sender is `trusted`; accepted: `trusted` with the addresses of the proxies that send \
                        the header, such as trusted = [\"10.0.0.0/8\"]";
            findings.error(door.at("accept-proxy"), &door.path_of("accept-proxy"), text.into());
        }
    }
}

/// Checks that the pool of a front door or VIP exists.
fn named_pool(door: &Values, pools: &[Values], known: &HashSet<&str>, findings: &mut Findings<'_>) {
    let Some(name) = door.text("pool").filter(|name| !known.contains(name)) else { return };
    // A pool that could not be read may have this name.
    let names = pools.iter().filter_map(|pool| pool.text("name"));
    if findings.has_error_on("pool") || names.clone().count() < pools.len() {
        return;
    }
    let hint = if pools.is_empty() { "; add a [[pool]] table".into() } else { hint(name, names) };
    let text = format!("no pool is named \"{name}\"{hint}");
    findings.error(door.at("pool"), &door.path_of("pool"), text);
}

/// Warns of options that have no effect without HTTP.
fn without_http(values: &Values, why: &str, findings: &mut Findings<'_>) {
    for option in values.spec.options {
        if option.http_only && values.given(option.name) {
            let text = format!("has no effect: {why}");
            findings.warning(values.at(option.name), &values.path_of(option.name), text);
        }
    }
}
