//! Checks options against each other: names that must be unique or exist, addresses that clash,
//! options that exclude each other or have no effect.

mod elastic;
mod pool;
mod pool_users;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use equipoise_session::config::Protocol;

use super::key::{Any, Key, Options, Text};
use super::place::is_unix_socket;
use super::problem::{Findings, hint};
use super::tables::{
    Api, ApiClient, ApiToken, Dns, Door, Elastic, ElasticSize, File, Pool, Session, Slice,
};
use super::text::ApiListen;
use super::users::{DoorTable, Mention, Users, mentions};
use super::view::{Location, View, Views};
use super::{Surroundings, access_log, dispatch, doors, health, limits, pool_tls, slice};

/// The tables that use pools.
const LEVELS: [Key<File, Any>; 4] =
    [File::SESSION.any(), File::DISPATCH.any(), File::PACKET.any(), File::DNS.any()];

/// Checks the whole file.
pub(super) fn check(file: View<'_, File>, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let (pools, sessions) = (file.get(File::POOL), file.get(File::SESSION));
    let served = LEVELS.into_iter().chain([File::SLICE.any()]).any(|level| file.given(level));
    // Members of a cluster may serve nothing: agents report, controllers plan.
    if !served && DoorTable::all(file).next().is_none() && !file.given(File::CLUSTER) {
        let what = match pools.is_empty() {
            true => "no front door, pool or zone, so this file configures nothing",
            false => "no front door, so nothing is served",
        };
        let text = format!(
            "{what}; add a [[session]], [[dispatch]], [[packet]], [[dns]] or [[slice]] table"
        );
        findings.warning(0, "session", text);
    }
    let api = file.get(File::API);
    unique(api.get(Api::TOKEN), ApiToken::NAME, findings);
    unique(api.get(Api::CLIENT), ApiClient::NAME, findings);
    unique(pools, Pool::NAME, findings);
    unique(sessions, Session::NAME, findings);
    unique(file.get(File::SLICE), Slice::NAME, findings);
    access_log::check(file, findings);
    dispatch::check(file, findings);
    slice::check(file, around, findings);
    listen_addresses(file, findings);
    for door in sessions {
        front_door(door, findings);
        doors::check(door, findings);
        if !file.given(File::CLUSTER) {
            limits::alone(door, findings);
        }
    }
    let known: HashSet<&str> = pools.iter().filter_map(|pool| pool.get(Pool::NAME)).collect();
    for mention in mentions(file) {
        named_pool(&mention, pools, &known, findings);
    }
    let users = Users::of(file);
    for pool in pools {
        check_pool(pool, file, &users, findings);
    }
}

/// Checks a pool against its users and the rest of the file.
fn check_pool(
    pool: View<'_, Pool>,
    file: View<'_, File>,
    users: &Users<'_>,
    findings: &mut Findings<'_>,
) {
    pool::backends(pool, findings);
    if let Some(elastic) = pool.get(Pool::ELASTIC) {
        unique(elastic.get(Elastic::SIZES), ElasticSize::NAME, findings);
        elastic::reachable(file, elastic, findings);
        elastic::declaring(file, elastic, findings);
    }
    health::check(pool, findings);
    // Without its name, the users of a pool are not known.
    let Some(name) = pool.get(Pool::NAME) else {
        pool::scheduling(pool, findings);
        return;
    };
    let users = &users.of_pool(name);
    if let Some(elastic) = pool.get(Pool::ELASTIC).filter(|it| !elastic::is_awaited(file, *it)) {
        elastic::targets(pool, elastic, users, findings);
        elastic::clocks(elastic, findings);
    }
    pool_tls::check(pool, users, findings);
    pool_users::unix_sockets(pool, users, findings);
    pool_users::learnt_limits(pool, users, findings);
    pool_users::unlimited(pool, users, findings);
    pool_users::backups(pool, users, findings);
    if users.doors.is_empty() && users.packet {
        pool_users::without_sessions(pool, findings);
    } else if !users.doors.is_empty() || !users.dns {
        pool::scheduling(pool, findings);
        pool_users::front_doors_of(pool, users, findings);
    }
}

/// Refuses two elements with the same text for an option.
fn unique<T>(elements: Views<'_, T>, option: Key<T, Option<Text>>, findings: &mut Findings<'_>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for element in elements {
        let Some(text) = element.get(option) else { continue };
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
fn listen_addresses(file: View<'_, File>, findings: &mut Findings<'_>) {
    let mut taken: BTreeMap<(bool, SocketAddr), String> = BTreeMap::new();
    let mut take = |datagrams: bool, address: SocketAddr, is_given: bool, listen: Location| {
        if address.port() == 0 {
            return;
        }
        if let Some(user) = taken.get(&(datagrams, address)) {
            let text = format!("\"{address}\" is in use, {user}; accepted: a free address or port");
            findings.error(listen.at, &listen.path, text);
            return;
        }
        let user = match is_given {
            true => format!("on line {}", findings.line(listen.at)),
            false => format!("by the default of {}", listen.path),
        };
        taken.insert((datagrams, address), user);
    };
    let api = file.get(File::API);
    if let ApiListen(Some(address)) = api.get(Api::LISTEN) {
        take(false, address, api.given(Api::LISTEN), api.location(Api::LISTEN));
    }
    for door in DoorTable::all(file) {
        let Some(protocol) = door.protocol() else { continue };
        for address in door.listen_addresses() {
            take(protocol == Protocol::Udp, address, true, door.listen());
        }
    }
    let mut served: HashSet<SocketAddr> = HashSet::new();
    for zone in file.get(File::DNS) {
        for address in zone.get(Dns::LISTEN).unwrap_or_default() {
            // Zones may share addresses.
            if served.insert(address) {
                take(true, address, true, zone.location(Dns::LISTEN));
                take(false, address, true, zone.location(Dns::LISTEN));
            }
        }
    }
}

fn front_door(door: View<'_, Session>, findings: &mut Findings<'_>) {
    if door.get(Session::LISTEN).is_some_and(|listen| listen.is_empty()) {
        let text = "an empty list; accepted: one address or more".to_string();
        findings.error(door.at(Session::LISTEN), &door.path_of(Session::LISTEN), text);
    }
    if let Some(protocol) = door.get(Session::PROTOCOL) {
        if protocol != Protocol::Http {
            without_http(door, "this front door does not speak HTTP", findings);
        }
        let reads_a_head = match protocol {
            Protocol::Http => true,
            Protocol::Tcp => {
                door.given(Session::TLS)
                    || door.given(Session::SNI)
                    || door.get(Session::ACCEPT_PROXY)
            }
            Protocol::Udp => false,
        };
        if !reads_a_head && door.given(Door::HEADER_TIMEOUT) {
            let text = "has no effect: this front door reads no head, no TLS and no PROXY protocol";
            findings.warning(
                door.at(Door::HEADER_TIMEOUT),
                &door.path_of(Door::HEADER_TIMEOUT),
                text.into(),
            );
        }
        if protocol == Protocol::Udp && door.given(Session::TLS) {
            let text = "stated, but TLS needs a stream; accepted with http and tcp";
            findings.error(door.at(Session::TLS), &door.path_of(Session::TLS), text.into());
        }
        if protocol != Protocol::Udp && door.given(Session::RESPONSES) {
            let text = "has no effect: this front door does not speak udp".to_string();
            findings.warning(door.at(Session::RESPONSES), &door.path_of(Session::RESPONSES), text);
        }
        if protocol == Protocol::Udp && door.get(Session::ACCEPT_PROXY) {
            let text =
                "true, but datagrams carry no PROXY protocol header; accepted with udp: false";
            findings.error(
                door.at(Session::ACCEPT_PROXY),
                &door.path_of(Session::ACCEPT_PROXY),
                text.into(),
            );
        } else if door.get(Session::ACCEPT_PROXY)
            && door.get(Door::TRUSTED).is_none_or(|trusted| trusted.is_empty())
        {
            let text = "true, but no sender is `trusted`; accepted: `trusted` with the addresses of the proxies that send \
                        the header, such as trusted = [\"10.0.0.0/8\"]";
            findings.error(
                door.at(Session::ACCEPT_PROXY),
                &door.path_of(Session::ACCEPT_PROXY),
                text.into(),
            );
        }
    }
}

/// Checks that the pool of a front door or VIP exists.
fn named_pool(
    mention: &Mention<'_>,
    pools: Views<'_, Pool>,
    known: &HashSet<&str>,
    findings: &mut Findings<'_>,
) {
    let Mention { pool: name, location } = mention;
    if known.contains(name) {
        return;
    }
    // A pool that could not be read may have this name.
    let names = pools.iter().filter_map(|pool| pool.get(Pool::NAME));
    if findings.has_error_on(File::POOL.name()) || names.clone().count() < pools.len() {
        return;
    }
    let hint = if pools.is_empty() { "; add a [[pool]] table".into() } else { hint(name, names) };
    let text = format!("no pool is named \"{name}\"{hint}");
    findings.error(location.at, &location.path, text);
}

/// Warns of options that have no effect without HTTP.
fn without_http<T: Options>(values: View<'_, T>, why: &str, findings: &mut Findings<'_>) {
    for option in values.stated().filter(|option| option.opt.http_only) {
        let text = format!("has no effect: {why}");
        findings.warning(values.at(option), &values.path_of(option), text);
    }
}
