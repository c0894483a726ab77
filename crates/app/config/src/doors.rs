//! Builds front doors: `[[session]]`, and the options that `[[dispatch]]` shares with it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_acme::AcmeFolder;
use equipoise_session::config::{ClientTimeouts, Forwarded, FrontDoor, Limits, Protocol, SniRoute};

use super::problem::Findings;
use super::text::{Bandwidth, Listen, RedirectTo};
use super::values::{Values, chosen};
use super::{Surroundings, door_tls, limits, routes, tables};

/// The listen addresses of a `[[session]]` or `[[dispatch]]` table.
pub(super) fn listen_addresses(door: &Values) -> Vec<SocketAddr> {
    if door.spec.option("protocol").is_none() {
        return door.parsed("listen").into_iter().collect();
    }
    let texts = door.texts("listen").unwrap_or_default().iter();
    let parsed = texts.filter_map(|text| text.parse().ok());
    parsed.flat_map(|Listen(addresses)| addresses).collect()
}

/// One front door for each listen address of the table.
pub(super) fn front_doors_of(
    door: &Values,
    folder: Option<&AcmeFolder>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Vec<FrontDoor> {
    let addresses = listen_addresses(door);
    let is_one = addresses.len() == 1;
    let tls = door_tls::of_door(door, folder, around, findings);
    let routes = routes::of_door(door, around, findings);
    let error_pages = routes::error_pages(door, around, findings);
    let doors = addresses.into_iter().filter_map(|listen| front_door(door, listen, is_one));
    let whole = |door| FrontDoor {
        tls: tls.clone(),
        routes: Arc::clone(&routes),
        error_pages: Arc::clone(&error_pages),
        ..door
    };
    doors.map(whole).collect()
}

fn front_door(door: &Values, listen: SocketAddr, is_one: bool) -> Option<FrontDoor> {
    let protocol = door.choice("protocol", &tables::PROTOCOL)?;
    let unnamed = FrontDoor::new(listen, protocol, door.text("pool")?);
    let name = match door.text("name") {
        Some(name) if is_one => name.into(),
        Some(name) => format!("{name}:{listen}").into(),
        None => unnamed.name.clone(),
    };
    let base = http_door(door, unnamed);
    Some(FrontDoor {
        name,
        accept_proxy: door.flag("accept-proxy"),
        sni: door.tables("sni").iter().filter_map(sni_route).collect(),
        redirect: door.parsed("redirect").map(|RedirectTo(port)| port),
        hsts: door.table("hsts").map(hsts),
        access: limits::access(door),
        client_limits: limits::limits(door),
        responses: door.number("responses").and_then(|number| u32::try_from(number).ok()),
        bandwidth: door.parsed("bandwidth").map(|Bandwidth(rate)| rate),
        server_timing: door.flag("server-timing"),
        security: door.choice("security-headers", &tables::SECURITY_HEADERS),
        timeouts: ClientTimeouts {
            tunnel: door.duration_if_any("tunnel-timeout"),
            ..base.timeouts.clone()
        },
        ..base
    })
}

/// The line of `Strict-Transport-Security`.
fn hsts(values: &Values) -> Arc<str> {
    let seconds = values.duration("max-age").as_secs();
    let part = |option: &str, text| if values.flag(option) { text } else { "" };
    let subdomains = part("subdomains", "; includeSubDomains");
    let preload = part("preload", "; preload");
    format!("Strict-Transport-Security: max-age={seconds}{subdomains}{preload}\r\n").into()
}

fn sni_route(route: &Values) -> Option<SniRoute> {
    Some(SniRoute { names: route.texts("names")?.to_vec(), pool: route.text("pool")?.into() })
}

/// Checks `sni`, which is for tcp without `tls`.
fn check_sni(door: &Values, findings: &mut Findings<'_>) {
    let mut names = HashSet::new();
    for route in door.tables("sni") {
        for name in route.texts("names").unwrap_or_default() {
            if !names.insert(name.to_ascii_lowercase()) {
                let text = format!("\"{name}\" is stated twice; accepted: each name once");
                findings.error(route.at("names"), &route.path_of("names"), text);
            }
        }
    }
    let protocol = door.choice("protocol", &tables::PROTOCOL);
    let wrong = match protocol {
        _ if !door.given("sni") => return,
        Some(Protocol::Http | Protocol::Udp) => "stated, and this front door is not tcp",
        Some(Protocol::Tcp) if door.given("tls") => "stated, and `tls` ends the clients' TLS here",
        Some(Protocol::Tcp) | None => return,
    };
    let text = format!("{wrong}; accepted: a tcp front door without `tls`");
    findings.error(door.at("sni"), &door.path_of("sni"), text);
}

/// Checks `redirect` and `hsts`, each of which is for one kind of http front door, `sni`, and
/// the limits on clients.
pub(super) fn check(door: &Values, findings: &mut Findings<'_>) {
    check_sni(door, findings);
    limits::check(door, door.choice("protocol", &tables::PROTOCOL), findings);
    let has_tls = door.given("tls");
    if has_tls && door.given("redirect") {
        let text = "stated, and clients of this front door use TLS already; accepted: a front door \
                    without `tls`, at port 80";
        findings.error(door.at("redirect"), &door.path_of("redirect"), text.to_string());
    }
    let Some(hsts) = door.table("hsts") else { return };
    if !has_tls {
        let text = "stated, but browsers ignore it without TLS (RFC 6797, section 8.1); accepted: a \
                    front door with `tls`";
        findings.error(door.at("hsts"), &door.path_of("hsts"), text.to_string());
    }
    let is_long = hsts.duration("max-age") >= Duration::from_secs(365 * 86_400);
    if hsts.flag("preload") && !(hsts.flag("subdomains") && is_long) {
        let text = "true, which browsers accept only with `subdomains` and a `max-age` of \"365d\" or more";
        findings.error(hsts.at("preload"), &hsts.path_of("preload"), text.to_string());
    }
}

fn forwarded(door: &Values) -> Forwarded {
    let fields = door.texts("forwarded").unwrap_or_default();
    let has = |name: &str| fields.iter().any(|field| field == name);
    Forwarded {
        x_forwarded_for: has("x-forwarded-for"),
        x_forwarded_proto: has("x-forwarded-proto"),
        x_forwarded_host: has("x-forwarded-host"),
        x_real_ip: has("x-real-ip"),
        forwarded: has("forwarded"),
    }
}

/// Adds the options that every HTTP front door has.
pub(super) fn http_door(door: &Values, unnamed: FrontDoor) -> FrontDoor {
    FrontDoor {
        limits: Limits {
            head_bytes_max: door.amount("head-max"),
            headers_max: door.amount("headers-max"),
            body_bytes_max: door.number("body-max"),
            connections_max: door.amount("connections-max"),
            streams_max: door.amount("streams-max"),
        },
        timeouts: ClientTimeouts {
            header: door.duration("header-timeout"),
            idle: door.duration("idle-timeout"),
            request: door.duration_if_any("request-timeout"),
            tunnel: None,
        },
        trusted: door.prefixes("trusted").collect(),
        forwarded: forwarded(door),
        underscores: chosen(door, "underscores", &tables::UNDERSCORES),
        upgrades: door.texts("upgrades").unwrap_or_default().into(),
        http2: door.flag("http2"),
        via: door.flag("via"),
        access_log: door.share("access-log"),
        priority: door.amount("priority"),
        ..unnamed
    }
}
