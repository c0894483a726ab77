//! Builds front doors: `[[session]]`, and the options that `[[dispatch]]` shares with it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_acme::AcmeFolder;
use equipoise_session::config::{ClientTimeouts, Forwarded, FrontDoor, Limits, Protocol, SniRoute};

use super::problem::Findings;
use super::tables::{Door, Hsts, Session, Sni};
use super::text::{Bandwidth, RedirectTo, prefixes};
use super::users::DoorTable;
use super::view::View;
use super::{Surroundings, door_tls, limits, routes};

/// One front door for each listen address of the table.
pub(super) fn front_doors_of(
    door: View<'_, Session>,
    folder: &AcmeFolder,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Vec<FrontDoor> {
    let addresses = DoorTable::Session(door).listen_addresses();
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

fn front_door(door: View<'_, Session>, listen: SocketAddr, is_one: bool) -> Option<FrontDoor> {
    let protocol = door.get(Session::PROTOCOL)?;
    let unnamed = FrontDoor::new(listen, protocol, door.get(Session::POOL)?);
    let name = match door.get(Session::NAME) {
        Some(name) if is_one => name.into(),
        Some(name) => format!("{name}:{listen}").into(),
        None => unnamed.name.clone(),
    };
    let base = http_door(door.part(), unnamed);
    Some(FrontDoor {
        name,
        accept_proxy: door.get(Session::ACCEPT_PROXY),
        sni: door.get(Session::SNI).iter().filter_map(sni_route).collect(),
        redirect: door.get(Session::REDIRECT).map(|RedirectTo(port)| port),
        hsts: door.get(Session::HSTS).map(hsts),
        http3: door.get(Session::HTTP3).then(|| alt_svc(listen)),
        access: limits::access(door, Session::ALLOW, Session::DENY),
        client_limits: limits::limits(door.get(Session::LIMIT)),
        responses: door.get(Session::RESPONSES),
        bandwidth: door.get(Session::BANDWIDTH).map(|Bandwidth(rate)| rate),
        server_timing: door.get(Session::SERVER_TIMING),
        security: door.get(Session::SECURITY_HEADERS),
        timeouts: ClientTimeouts {
            tunnel: door.get(Session::TUNNEL_TIMEOUT),
            ..base.timeouts.clone()
        },
        ..base
    })
}

/// The line of `Alt-Svc` (RFC 7838), valid for a day.
fn alt_svc(listen: SocketAddr) -> Arc<str> {
    format!("Alt-Svc: h3=\":{}\"; ma=86400\r\n", listen.port()).into()
}

/// The line of `Strict-Transport-Security`.
fn hsts(values: View<'_, Hsts>) -> Arc<str> {
    let seconds = values.get(Hsts::MAX_AGE).as_secs();
    let part = |option, text| if values.get(option) { text } else { "" };
    let subdomains = part(Hsts::SUBDOMAINS, "; includeSubDomains");
    let preload = part(Hsts::PRELOAD, "; preload");
    format!("Strict-Transport-Security: max-age={seconds}{subdomains}{preload}\r\n").into()
}

fn sni_route(route: View<'_, Sni>) -> Option<SniRoute> {
    Some(SniRoute { names: route.get(Sni::NAMES)?.to_vec(), pool: route.get(Sni::POOL)?.into() })
}

/// Checks `sni`, which is for tcp without `tls`.
fn check_sni(door: View<'_, Session>, findings: &mut Findings<'_>) {
    let mut names = HashSet::new();
    for route in door.get(Session::SNI) {
        for name in route.get(Sni::NAMES).unwrap_or_default() {
            if !names.insert(name.to_ascii_lowercase()) {
                let text = format!("\"{name}\" is stated twice; accepted: each name once");
                findings.error(route.at(Sni::NAMES), &route.path_of(Sni::NAMES), text);
            }
        }
    }
    let protocol = door.get(Session::PROTOCOL);
    let wrong = match protocol {
        _ if !door.given(Session::SNI) => return,
        Some(Protocol::Http | Protocol::Udp) => "stated, and this front door is not tcp",
        Some(Protocol::Tcp) if door.given(Session::TLS) => {
            "stated, and `tls` ends the clients' TLS here"
        }
        Some(Protocol::Tcp) | None => return,
    };
    let text = format!("{wrong}; accepted: a tcp front door without `tls`");
    findings.error(door.at(Session::SNI), &door.path_of(Session::SNI), text);
}

/// Checks `http3`, which needs `tls` and a build with it.
fn check_http3(door: View<'_, Session>, findings: &mut Findings<'_>) {
    let has_any_port = DoorTable::Session(door).listen_addresses().iter().any(|it| it.port() == 0);
    let text = match () {
        () if !door.get(Session::HTTP3) => return,
        () if !equipoise_session::HTTP3 => {
            "true, and this build has no HTTP/3: build with --features http3"
        }
        () if !door.given(Session::TLS) => {
            "true, and HTTP/3 has no form without TLS; accepted: a front door with `tls`"
        }
        () if door.get(Session::ACCEPT_PROXY) => {
            "true, and QUIC has no PROXY protocol; accepted: a front door without `accept-proxy`"
        }
        () if has_any_port => {
            "true, and Alt-Svc needs a fixed port; accepted: \
                               a port in `listen`"
        }
        () => return,
    };
    findings.error(door.at(Session::HTTP3), &door.path_of(Session::HTTP3), text.to_string());
}

/// Checks `redirect` and `hsts`, each of which is for one kind of http front door, `sni`, and
/// the limits on clients.
pub(super) fn check(door: View<'_, Session>, findings: &mut Findings<'_>) {
    check_sni(door, findings);
    check_http3(door, findings);
    limits::check(door, findings);
    let has_tls = door.given(Session::TLS);
    if has_tls && door.given(Session::REDIRECT) {
        let text = "stated, and clients of this front door use TLS already; accepted: a front door \
                    without `tls`, at port 80";
        findings.error(
            door.at(Session::REDIRECT),
            &door.path_of(Session::REDIRECT),
            text.to_string(),
        );
    }
    let Some(hsts) = door.get(Session::HSTS) else { return };
    if !has_tls {
        let text = "stated, but browsers ignore it without TLS (RFC 6797, section 8.1); accepted: a \
                    front door with `tls`";
        findings.error(door.at(Session::HSTS), &door.path_of(Session::HSTS), text.to_string());
    }
    let is_long = hsts.get(Hsts::MAX_AGE) >= Duration::from_secs(365 * 86_400);
    if hsts.get(Hsts::PRELOAD) && !(hsts.get(Hsts::SUBDOMAINS) && is_long) {
        let text = "true, which browsers accept only with `subdomains` and a `max-age` of \"365d\" or more";
        findings.error(hsts.at(Hsts::PRELOAD), &hsts.path_of(Hsts::PRELOAD), text.to_string());
    }
}

fn forwarded(door: View<'_, Door>) -> Forwarded {
    let fields = door.get(Door::FORWARDED);
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
pub(super) fn http_door(door: View<'_, Door>, unnamed: FrontDoor) -> FrontDoor {
    FrontDoor {
        limits: Limits {
            head_bytes_max: door.get(Door::HEAD_MAX),
            headers_max: door.get(Door::HEADERS_MAX),
            body_bytes_max: door.get(Door::BODY_MAX),
            connections_max: door.get(Door::CONNECTIONS_MAX),
            streams_max: door.get(Door::STREAMS_MAX),
        },
        timeouts: ClientTimeouts {
            header: door.get(Door::HEADER_TIMEOUT),
            idle: door.get(Door::IDLE_TIMEOUT),
            request: door.get(Door::REQUEST_TIMEOUT),
            tunnel: None,
        },
        trusted: prefixes(door.get(Door::TRUSTED)).into_iter().collect(),
        forwarded: forwarded(door),
        underscores: door.get(Door::UNDERSCORES),
        upgrades: door.get(Door::UPGRADES).into(),
        http2: door.get(Door::HTTP2),
        via: door.get(Door::VIA),
        access_log: door.get(Door::ACCESS_LOG),
        priority: door.get(Door::PRIORITY),
        ..unnamed
    }
}
