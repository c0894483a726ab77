//! Checks options against each other: names that must be unique or exist, addresses that clash,
//! options that exclude each other or have no effect.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use equipoise_core::SchedulerKind;
use equipoise_session::config::{CheckMethod, Concurrency, Protocol, Upstream};

use super::problem::{Findings, hint};
use super::text::{ApiListen, show_duration};
use super::users::{PoolUsers, Users, protocol_of, routes, sni_routes};
use super::values::Values;
use super::{
    Surroundings, access_log, declared, dispatch, doors, limits, pool_tls, pools, slice, tables,
};

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
    access_log::check(file, findings);
    dispatch::check(file, findings);
    slice::check(file, around, findings);
    listen_addresses(file, findings);
    for door in sessions {
        front_door(door, findings);
        doors::check(door, findings);
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
        backends(pool, findings);
        if let Some(elastic) = pool.table("elastic") {
            unique(elastic.tables("sizes"), "name", findings);
            reachable(file, elastic, findings);
            declaring(file, elastic, findings);
        }
        health(pool, findings);
        // Without its name, the users of a pool are not known.
        let Some(name) = pool.text("name") else {
            scheduling(pool, findings);
            continue;
        };
        let users = &users.of_pool(name);
        if let Some(elastic) = pool.table("elastic").filter(|it| !is_awaited(file, it)) {
            targets(pool, elastic, users, findings);
            clocks(elastic, findings);
        }
        pool_tls::check(pool, users, findings);
        unix_sockets(pool, users, findings);
        learnt_limits(pool, users, findings);
        unlimited(pool, users, findings);
        backups(pool, users, findings);
        if users.doors.is_empty() && users.packet {
            without_sessions(pool, findings);
        } else if !users.doors.is_empty() || !users.dns {
            scheduling(pool, findings);
            front_doors_of(pool, users, findings);
        }
    }
}

/// Whether this is a node's file and the controllers' files declare the pool.
fn is_awaited(file: &Values, elastic: &Values) -> bool {
    declared::by_controllers(elastic) && !declared::is_controller(file)
}

/// Checks that one file declares the pool: this one or the controllers'.
fn declaring(file: &Values, elastic: &Values, findings: &mut Findings<'_>) {
    let mut error = |option: &str, text: &str| {
        findings.error(elastic.at(option), &elastic.path_of(option), text.to_string());
    };
    let is_awaited = is_awaited(file, elastic);
    if is_awaited && !file.given("cluster") {
        error(
            "declared",
            "\"controllers\", and this machine has none; accepted: \"here\", or a [cluster] table",
        );
    } else if is_awaited {
        let stated = elastic.spec.options.iter().map(|option| option.name);
        for option in stated.filter(|it| !["declared", "start-wait"].contains(it)) {
            if elastic.given(option) {
                let text = "stated, and the controllers' files declare this pool; accepted: state it there, or \
                            `declared = \"here\"`";
                error(option, text);
            }
        }
    } else {
        if !elastic.given("max") {
            error("max", "missing; accepted: the number of backends at most, 1 to 10000");
        }
        let drivers = ["process", "exec", "webhook"];
        if declared::by_controllers(elastic) && !drivers.iter().any(|it| elastic.given(it)) {
            let text = "\"controllers\", and no driver is stated, so that no node can create backends; accepted: a \
                        [pool.elastic.process], [pool.elastic.exec] or [pool.elastic.webhook] table beside it";
            error("declared", text);
        }
    }
}

/// In a cluster, backends that one node creates must be reachable from the other nodes.
fn reachable(file: &Values, elastic: &Values, findings: &mut Findings<'_>) {
    let Some(process) = elastic.table("process").filter(|_| file.given("cluster")) else { return };
    if declared::by_controllers(elastic) && !process.given("address") {
        // Each node uses its own address.
        return;
    }
    let address: Option<IpAddr> = process.parsed("address");
    if address.is_some_and(|address| address.is_loopback()) {
        let text = "a loopback address, where other nodes of the cluster do not reach the backends that are made here; \
                    accepted: this machine's address";
        findings.warning(process.at("address"), &process.path_of("address"), text.to_string());
    }
}

/// Refuses a schedule that states its clock twice.
fn clocks(elastic: &Values, findings: &mut Findings<'_>) {
    for hours in elastic.tables("schedule") {
        if hours.given("zone") && hours.given("utc-offset") {
            let text = "stated beside `zone`, which has its own offset; accepted: one of them";
            findings.error(hours.at("utc-offset"), &hours.path_of("utc-offset"), text.to_string());
        }
    }
}

/// Checks the target of an elastic pool. The pool's utilisation is measured by concurrency limits,
/// unless the target states the capacity of a backend.
fn targets(pool: &Values, elastic: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let stated = ["target-concurrency", "target-requests"];
    let given: Vec<&str> = stated.into_iter().filter(|option| elastic.given(option)).collect();
    if let [_, second] = given[..] {
        let text = "a second target; accepted: one of `target-concurrency` and `target-requests`";
        findings.error(elastic.at(second), &elastic.path_of(second), text.to_string());
    }
    let is_paused = elastic.choice("mode", &tables::MODE) == Some(true);
    if !is_paused {
        uncounted(elastic, users, findings);
    }
    let is_unlimited = match pool.given("concurrency") {
        true => pools::concurrency(pool) == Some(Concurrency::None),
        // Only http front doors learn limits by default.
        false => !users.are_http(),
    };
    if is_unlimited && given.is_empty() && !is_paused && !users.doors.is_empty() {
        let text = "\"none\", so the pool's load is unknown, and the pool never grows; accepted: another \
                    `concurrency`, or `target-concurrency` or `target-requests` in its [pool.elastic]";
        findings.error(pool.at("concurrency"), &pool.path_of("concurrency"), text.to_string());
    }
}

/// Checks elastic pools behind VIPs and names. No balancer counts the requests of these clients, so
/// the pool's load is unknown.
fn uncounted(elastic: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let user = match (users.packet, users.dns) {
        (true, _) => "[[packet]]",
        (false, true) => "[[dns]]",
        (false, false) => return,
    };
    if elastic.number("min") == Some(0) {
        let text = format!(
            "0, and {user} tables use this pool, whose clients are not counted: the first backend would never be \
             created; accepted: 1 or more"
        );
        findings.error(elastic.at("min"), &elastic.path_of("min"), text);
    }
    if elastic.number("min") != elastic.number("max") {
        let text = format!(
            "the pool does not scale by itself: {user} tables use it, and their clients are not counted; `equipoise plan pin` \
             sets how many backends it has"
        );
        findings.warning(elastic.at, &elastic.path, text);
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
    if let Some(protocol) = door.choice("protocol", &tables::PROTOCOL) {
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

fn is_unix_socket(backend: &Values) -> bool {
    backend.text("address").is_some_and(|address| address.starts_with("unix:"))
}

/// Refuses learnt limits with udp: datagrams do not queue, and a limit is learnt only while
/// requests wait.
fn learnt_limits(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    if !users.doors.iter().any(|door| protocol_of(door) == Some(Protocol::Udp)) {
        return;
    }
    for values in std::iter::once(pool).chain(pool.tables("backends")) {
        if pools::concurrency(values) == Some(Concurrency::Learnt) {
            let text = "\"learnt\", and a front door that speaks udp uses this pool, from which no limit can be \
                        learned; accepted: a number or \"none\"";
            findings.error(values.at("concurrency"), &values.path_of("concurrency"), text.into());
        }
    }
    let is_paused = |elastic: &Values| elastic.choice("mode", &tables::MODE) == Some(true);
    // A pool that is not paused has another error.
    if !pool.given("concurrency")
        && pool.table("elastic").is_some_and(is_paused)
        && pools::concurrency_of_pool(pool, false) == Concurrency::Learnt
    {
        let text = "not stated, and this elastic pool would learn it, but a front door that speaks udp uses the pool, \
                    from which no limit can be learned; accepted: a number or \"none\"";
        findings.error(pool.at("concurrency"), &pool.path_of("concurrency"), text.into());
    }
}

/// Warns of a pool that learns no limits because of one of its front doors.
fn unlimited(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let speaks = |protocol| users.doors.iter().any(|door| protocol_of(door) == Some(protocol));
    let others = [(Protocol::Tcp, "tcp"), (Protocol::Udp, "udp")];
    let other = others.into_iter().find(|(protocol, _)| speaks(*protocol));
    let is_unlimited = pools::concurrency_of_pool(pool, false) == Concurrency::None;
    if let Some((_, word)) = other.filter(|_| speaks(Protocol::Http))
        && !pool.given("concurrency")
        && is_unlimited
    {
        let text = format!(
            "not stated, and because a front door that speaks {word} uses this pool, too, its http requests have no \
             limit and no queue; state a number, \"learnt\" or \"none\", or give each protocol its own pool"
        );
        findings.warning(pool.at("concurrency"), &pool.path_of("concurrency"), text);
    }
}

/// Refuses unix sockets for levels that cannot use them: only tcp and http front doors on this
/// machine can.
fn unix_sockets(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let is_udp = |door: &&Values| protocol_of(door) == Some(Protocol::Udp);
    let user = if users.packet {
        "a [[packet]] table"
    } else if users.dns {
        "a [[dns]] table"
    } else if users.doors.iter().any(is_udp) {
        "a front door that speaks udp"
    } else {
        return;
    };
    for backend in pool.tables("backends") {
        if is_unix_socket(backend) {
            let text =
                format!("a unix socket, and {user} uses this pool; accepted: IP:PORT or HOST:PORT");
            findings.error(backend.at("address"), &backend.path_of("address"), text);
        }
    }
}

/// Warns if a level that ignores `backup` uses the pool.
fn backups(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let user = match (users.packet, users.dns) {
        (true, _) => "[[packet]]",
        (false, true) => "[[dns]]",
        (false, false) => return,
    };
    for backend in pool.tables("backends").iter().filter(|backend| backend.flag("backup")) {
        let text = format!(
            "has no effect on the {user} tables that use this pool: they send to a backup as to any other backend"
        );
        findings.warning(backend.at("backup"), &backend.path_of("backup"), text);
    }
}

/// Warns of options that only front doors use, in a pool without front doors.
fn without_sessions(pool: &Values, findings: &mut Findings<'_>) {
    let others = ["scheduler", "connect-timeout", "retries", "send-proxy", "passive", "slow-start"];
    for option in pool.spec.options {
        if (option.http_only || others.contains(&option.name)) && pool.given(option.name) {
            let text = match option.name {
                "scheduler" => {
                    "has no effect: only [[packet]] tables use this pool, and each has its own `scheduler`"
                }
                _ => "has no effect: only [[packet]] tables use this pool",
            };
            findings.warning(pool.at(option.name), &pool.path_of(option.name), text.into());
        }
    }
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

fn backends(pool: &Values, findings: &mut Findings<'_>) {
    let (backends, path) = (pool.tables("backends"), pool.path_of("backends"));
    unique(backends, "name", findings);
    if findings.has_error_below(&path) {
        return;
    }
    let wrong = if backends.is_empty() && (pool.given("elastic") || pool.given("discover")) {
        return;
    } else if backends.is_empty() {
        "no backends, so clients of this pool are refused"
    } else if backends.iter().all(|backend| backend.number("weight") == Some(0)) {
        "every backend has weight 0, so clients of this pool are refused"
    } else {
        return;
    };
    findings.warning(pool.at("backends"), &path, wrong.to_string());
}

fn scheduling(pool: &Values, findings: &mut Findings<'_>) {
    let scheduler = pool.choice("scheduler", &tables::SCHEDULER);
    let weighted = match scheduler {
        Some(SchedulerKind::RoundRobin) => Some("weighted-round-robin"),
        Some(SchedulerKind::LeastConnection) => Some("weighted-least-connection"),
        _ => None,
    };
    if let (Some(weighted), Some(name)) = (weighted, pool.text("scheduler")) {
        let text = format!("has no effect: {name} ignores weights; use {weighted}");
        if pool.choice("weights", &tables::WEIGHTS) == Some(true) {
            findings.warning(pool.at("weights"), &pool.path_of("weights"), text.clone());
        }
        if pool.given("slow-start") {
            findings.warning(pool.at("slow-start"), &pool.path_of("slow-start"), text.clone());
        }
        for backend in pool.tables("backends") {
            // Weight 0 disables a backend under every scheduler, and 1 is the default.
            if backend.number("weight").is_some_and(|weight| weight > 1) {
                findings.warning(backend.at("weight"), &backend.path_of("weight"), text.clone());
            }
        }
    }
    if pool.given("hash-by") && scheduler != Some(SchedulerKind::SourceHash) {
        let text = "has no effect: the scheduler does not hash requests; use source-hash";
        findings.warning(pool.at("hash-by"), &pool.path_of("hash-by"), text.to_string());
    }
    if pool.given("hedge")
        && pool.choice("upstream", &tables::UPSTREAM) == Some(Upstream::Multiplexed)
    {
        let text = "a request on a shared session cannot be hedged; accepted: `upstream = \"exclusive\"` or `\"http2\"`";
        findings.error(pool.at("hedge"), &pool.path_of("hedge"), text.to_string());
    }
    let Some(upstream) = pool.choice("upstream", &tables::UPSTREAM) else { return };
    let health = pool.table("health").filter(|health| health.given("grpc"));
    if let Some(health) = health.filter(|_| pool.given("tls") && upstream != Upstream::Http2) {
        let text = "over TLS this check needs HTTP/2 of the pool's backends; accepted: `upstream = \"http2\"`, or no `tls`";
        findings.error(health.at("grpc"), &health.path_of("grpc"), text.into());
    }
    let name = pool.text("upstream").unwrap_or_default();
    let (multiplexed, http2) = (upstream == Upstream::Multiplexed, upstream == Upstream::Http2);
    let options = [
        ("multiplex-sessions", multiplexed),
        ("multiplex-depth", multiplexed),
        ("multiplex-slow", multiplexed),
        ("streams-max", http2),
        ("idle-sessions-max", !http2),
    ];
    for (option, _) in options.iter().filter(|(option, used)| !used && pool.given(option)) {
        let text = format!("has no effect: `upstream` is \"{name}\"");
        findings.warning(pool.at(option), &pool.path_of(option), text);
    }
}

fn health(pool: &Values, findings: &mut Findings<'_>) {
    if let Some(passive) = pool.table("passive") {
        let (first, longest) = (passive.duration("ejection"), passive.duration("ejection-max"));
        if longest < first {
            let option = if passive.given("ejection-max") { "ejection-max" } else { "ejection" };
            let text = format!(
                "`ejection-max` ({}) is below `ejection` ({}); accepted: as long or longer",
                show_duration(longest),
                show_duration(first)
            );
            findings.error(passive.at(option), &passive.path_of(option), text);
        }
    }
    let Some(health) = pool.table("health") else { return };
    // `tcp = false` beside `http` is allowed; it means the same as leaving `tcp` out.
    let (tcp, http, grpc) = (health.flag("tcp"), health.given("http"), health.given("grpc"));
    if tcp && http {
        let text =
            "true, together with `http`; accepted: one of the two (http opens a connection too)";
        findings.error(health.at("tcp"), &health.path_of("tcp"), text.into());
    } else if grpc && (tcp || http) {
        let other = if tcp { "tcp" } else { "http" };
        let text = format!("set, together with `{other}`; accepted: one of the two");
        findings.error(health.at("grpc"), &health.path_of("grpc"), text);
    } else if !tcp && !http && !grpc && !findings.has_error_below(&health.path) {
        let text = "none of `tcp`, `http` and `grpc` is set; accepted: tcp = true, http = \"/PATH\" \
                    or grpc = \"SERVICE\"";
        findings.error(health.at, &health.path, text.into());
    }
    for option in ["method", "host", "status", "body"] {
        if (tcp || grpc) && !http && health.given(option) {
            let kind = if tcp { "tcp" } else { "grpc" };
            let text = format!("has no effect on a {kind} check; accepted: with `http` beside it");
            findings.error(health.at(option), &health.path_of(option), text);
        }
    }
    if health.given("body")
        && health.choice("method", &tables::CHECK_METHOD) == Some(CheckMethod::Head)
    {
        let text = "a response to HEAD has no body; accepted: `method` GET, OPTIONS or POST, or no \
                    `body`";
        findings.error(health.at("body"), &health.path_of("body"), text.into());
    }
    if health.given("port") && pool.tables("backends").iter().any(is_unix_socket) {
        let text = "has no effect on a unix socket, which this pool has as a backend; accepted: \
                    without `port`, or with backends at IP:PORT alone";
        findings.error(health.at("port"), &health.path_of("port"), text.into());
    }
    let (interval, timeout) = (health.duration("interval"), health.duration("timeout"));
    if timeout > interval {
        let option = if health.given("timeout") { "timeout" } else { "interval" };
        let text = format!(
            "`timeout` ({}) is longer than `interval` ({}), so a backend that hangs is checked less often",
            show_duration(timeout),
            show_duration(interval)
        );
        findings.warning(health.at(option), &health.path_of(option), text);
    }
}

/// Warns of pool options that the protocols of the pool's front doors do not use.
fn front_doors_of(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let protocols: Option<Vec<Protocol>> =
        users.doors.iter().map(|door| protocol_of(door)).collect();
    // A front door that could not be read may have any protocol.
    let Some(protocols) = protocols else { return };
    if protocols.is_empty() {
        let unread = LEVELS.iter().any(|it| findings.has_error_below(it));
        if !unread {
            findings.warning(pool.at, &pool.path, "no front door uses this pool".to_string());
        }
        return;
    }
    if !protocols.contains(&Protocol::Http) {
        let why = "no front door of this pool speaks HTTP";
        for values in [Some(pool), pool.table("passive")].into_iter().flatten() {
            without_http(values, why, findings);
        }
    }
    send_proxy(pool, users, &protocols, findings);
    if !users.packet
        && protocols.iter().all(|protocol| *protocol == Protocol::Udp)
        && let Some(health) = pool.table("health")
        && health.given("http")
    {
        let text =
            "every front door of this pool is udp, whose backends do not answer HTTP there; \
                        accepted: tcp = true where they accept TCP too, or no `health`"
                .to_string();
        findings.error(health.at("http"), &health.path_of("http"), text);
    }
}

/// Checks `send-proxy`: a session with such a header is for one client.
fn send_proxy(
    pool: &Values,
    users: &PoolUsers<'_>,
    protocols: &[Protocol],
    findings: &mut Findings<'_>,
) {
    if !pool.given("send-proxy") {
        return;
    }
    let (at, option) = (pool.at("send-proxy"), pool.path_of("send-proxy"));
    if protocols.iter().all(|protocol| *protocol == Protocol::Udp) {
        let text = "has no effect: no front door of this pool is tcp or http".to_string();
        findings.warning(at, &option, text);
    }
    let shared = pool.choice("upstream", &tables::UPSTREAM) != Some(Upstream::Exclusive);
    if shared && protocols.contains(&Protocol::Http) {
        let text = "the header names one client, and clients share sessions by `upstream`; accepted: `upstream = \
                    \"exclusive\"`, or no `send-proxy`: http front doors send the client's address in headers";
        findings.error(at, &option, text.to_string());
    }
    if users.doors.iter().any(|door| door.spec.title == "[[dispatch]]") {
        let text = "a [[dispatch]] front door uses this pool, and a peer's connection carries requests of many clients; \
                    accepted: no `send-proxy`: http front doors send the client's address in headers";
        findings.error(at, &option, text.to_string());
    }
}
