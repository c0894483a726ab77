//! `[acme]`, and the front doors that get certificates from there.

use std::path::Path;
use std::sync::Arc;

use equipoise_acme::{Acme, AcmeFolder, Method, OrderedName};
use equipoise_dns::config::ZoneConfig;
use equipoise_session::config::{FrontDoor, Protocol};
use equipoise_store::place;
use equipoise_tls::{AutomaticName, Certificate};

use super::problem::Findings;
use super::tables::{Cluster, Controller, DoorTls, File, Session};
use super::text::Listen;
use super::view::View;
use super::{FileKind, Surroundings, authorities, tables};

/// The port at which a directory verifies names by HTTP-01, and by TLS-ALPN-01.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// The folder of account and certificates. `instance` is this process's name.
pub(super) fn folder(file: View<'_, File>, instance: &str) -> AcmeFolder {
    let stated = file.get(File::CONTROLLER).get(Controller::STATE).map(Path::new);
    let directory = file.get(File::ACME).get(tables::Acme::DIRECTORY);
    AcmeFolder::of(&place::folder(stated, instance), directory)
}

/// The names of `auto`, and their certificates that exist already.
pub(super) fn names(
    tls: View<'_, DoorTls>,
    folder: &AcmeFolder,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> (Vec<AutomaticName>, Vec<Certificate>) {
    let (mut names, mut certificates) = (Vec::new(), Vec::new());
    for text in tls.get(DoorTls::AUTO).unwrap_or_default() {
        let name = text.to_ascii_lowercase();
        let files = folder.certificate(&name);
        if names.iter().any(|known: &AutomaticName| known.name == name) {
            let text = format!("\"{text}\" is stated twice");
            findings.warning(tls.at(DoorTls::AUTO), &tls.path_of(DoorTls::AUTO), text);
            continue;
        }
        // Before the first certificate there is no file, and another user cannot read it. The
        // process itself reports a damaged one.
        let read = files.load(|path| (around.read)(path, FileKind::Certificates));
        certificates.extend(read.ok());
        names.push(AutomaticName { name, files });
    }
    (names, certificates)
}

/// The orders for all front doors. `None`: no front door has `auto`.
pub(super) fn config(
    file: View<'_, File>,
    folder: AcmeFolder,
    (doors, zones): (&[FrontDoor], &[Arc<ZoneConfig>]),
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Acme> {
    let values = file.get(File::ACME);
    let mut names = ordered(doors, zones);
    let from_controllers = from_controllers(file, findings);
    let for_nodes = for_nodes(file, values, findings);
    names_for_nodes(&for_nodes, &mut names, zones, values, findings);
    // A controller that answers for zones gives the answers to other controllers' challenges.
    let shares = file.get(File::CLUSTER).is_some_and(|cluster| cluster.given(Cluster::STORE));
    let answers = file.given(File::ACME) && shares && !zones.is_empty();
    if names.is_empty() && !answers {
        let states = file.get(File::SESSION).iter().filter_map(|door| door.get(Session::TLS));
        if file.given(File::ACME) && !states.into_iter().any(|tls| tls.given(DoorTls::AUTO)) {
            let text = "has no effect: no front door has `tls = { auto = [...] }`";
            findings.warning(values.start(), "acme", text.into());
        }
        return None;
    }
    if !names.is_empty() && !from_controllers && !values.get(tables::Acme::TERMS_AGREED) {
        let text = "not true, and front doors have `auto`; accepted: true, if you agree to the terms of the authority";
        findings.error(values.at(tables::Acme::TERMS_AGREED), "acme.terms-agreed", text.into());
    }
    Some(Acme {
        directory: values.get(tables::Acme::DIRECTORY).into(),
        email: values.get(tables::Acme::EMAIL).map(Into::into),
        ca: authorities::read(values, tables::Acme::CA, around, findings),
        folder,
        names,
        for_nodes,
        from_controllers,
    })
}

/// Whether the certificates come from the controllers.
fn from_controllers(file: View<'_, File>, findings: &mut Findings<'_>) -> bool {
    let values = file.get(File::ACME);
    if !values.get(tables::Acme::FROM_CONTROLLERS) {
        return false;
    }
    let is_node =
        file.get(File::CLUSTER).is_some_and(|cluster| cluster.given(Cluster::CONTROLLERS));
    if !is_node {
        let text = "stated, and this machine is no node of a cluster; accepted: beside `cluster.controllers`";
        let at = values.at(tables::Acme::FROM_CONTROLLERS);
        findings.error(at, "acme.from-controllers", text.into());
    }
    is_node
}

/// The names whose certificates a controller gives to nodes.
fn for_nodes(
    file: View<'_, File>,
    values: View<'_, tables::Acme>,
    findings: &mut Findings<'_>,
) -> Vec<String> {
    let names = values.get(tables::Acme::FOR_NODES).unwrap_or_default();
    let mut names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_controller = file.get(File::CLUSTER).is_some_and(|it| !it.given(Cluster::CONTROLLERS));
    if !names.is_empty() && !is_controller {
        let text = "stated, and this machine is no controller of a cluster; accepted: beside `cluster.listen`";
        findings.error(values.at(tables::Acme::FOR_NODES), "acme.for-nodes", text.into());
    }
    names.sort();
    names.dedup();
    names
}

/// Adds the names of nodes to those that are ordered. Nodes give the answers to challenges, and the
/// directory may reach them at any port.
fn names_for_nodes(
    for_nodes: &[String],
    names: &mut Vec<OrderedName>,
    zones: &[Arc<ZoneConfig>],
    values: View<'_, tables::Acme>,
    findings: &mut Findings<'_>,
) {
    for name in for_nodes {
        let is_wildcard = name.starts_with("*.");
        let mut methods = match is_wildcard {
            true => Vec::new(),
            false => vec![Method::Http01, Method::TlsAlpn01],
        };
        if is_answered(name, zones) {
            methods.push(Method::Dns01);
        } else if is_wildcard {
            findings.error(values.at(tables::Acme::FOR_NODES), "acme.for-nodes", no_zone(name));
        }
        if names.iter().all(|known| known.name != *name) {
            names.push(OrderedName { name: name.clone(), methods });
        }
    }
}

fn no_zone(wildcard: &str) -> String {
    format!(
        "\"{wildcard}\" is a wildcard, which authorities verify by DNS alone, and no [[dns]] table here answers for \
         \"{}\"; accepted: a zone with that name, or `certificates`",
        wildcard.trim_start_matches("*.")
    )
}

/// Each name once, with the ways to verify it. Behind a device that forwards ports, the ports here
/// are others, so every way is tried.
fn ordered(doors: &[FrontDoor], zones: &[Arc<ZoneConfig>]) -> Vec<OrderedName> {
    let clear = || doors.iter().filter(|door| is_clear(door));
    let has_http = clear().next().is_some();
    let prefers_http = clear().any(|door| door.listen.port() == HTTP);
    let mut names: Vec<OrderedName> = Vec::new();
    for door in doors {
        let Some(tls) = &door.tls else { continue };
        for automatic in tls.automatic() {
            let at_port = prefers_http || door.listen.port() != HTTPS;
            let mut methods = match (has_http, at_port) {
                // Authorities verify wildcards by DNS alone.
                _ if automatic.name.starts_with("*.") => Vec::new(),
                (false, _) => vec![Method::TlsAlpn01],
                (true, true) => vec![Method::Http01, Method::TlsAlpn01],
                (true, false) => vec![Method::TlsAlpn01, Method::Http01],
            };
            if is_answered(&automatic.name, zones) {
                methods.push(Method::Dns01);
            }
            match names.iter_mut().find(|known| known.name == automatic.name) {
                Some(known) if door.listen.port() == HTTPS => known.methods = methods,
                Some(_) => {}
                None => names.push(OrderedName { name: automatic.name.clone(), methods }),
            }
        }
    }
    names
}

/// Whether the DNS level of this process answers for a name.
fn is_answered(name: &str, zones: &[Arc<ZoneConfig>]) -> bool {
    let name = name.trim_start_matches("*.");
    zones.iter().any(|zone| zone.covers(name).is_some())
}

fn is_clear(door: &FrontDoor) -> bool {
    door.protocol == Protocol::Http && door.tls.is_none()
}

/// Warns if a directory may not reach this process to verify its names.
pub(super) fn check(
    file: View<'_, File>,
    doors: &[FrontDoor],
    zones: &[Arc<ZoneConfig>],
    findings: &mut Findings<'_>,
) {
    let at_http = doors.iter().any(|door| is_clear(door) && door.listen.port() == HTTP);
    let from_controllers = file.get(File::ACME).get(tables::Acme::FROM_CONTROLLERS);
    for door in file.get(File::SESSION) {
        let Some(tls) = door.get(Session::TLS).filter(|tls| tls.given(DoorTls::AUTO)) else {
            continue;
        };
        let names = tls.get(DoorTls::AUTO).unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let is_out = |name: &&String| !is_answered(name, zones);
        let wildcards = names.iter().filter(|name| name.starts_with("*."));
        for name in wildcards.filter(|name| !from_controllers && is_out(name)) {
            findings.error(tls.at(DoorTls::AUTO), &tls.path_of(DoorTls::AUTO), no_zone(name));
        }
        let mut warn = |text: &str| {
            findings.warning(tls.at(DoorTls::AUTO), &tls.path_of(DoorTls::AUTO), text.to_string())
        };
        let listens = door.get(Session::LISTEN).unwrap_or_default();
        let addresses = listens.into_iter().flat_map(|Listen(all)| all);
        let at_https = addresses.into_iter().any(|address| address.port() == HTTPS);
        if !at_http && !at_https && names.iter().any(|name| is_out(&name)) {
            warn(
                "the authority connects to port 80 or 443 of the name, and neither an http front door without `tls` \
                 listens on 80 nor this one on 443; forward one of the ports to a front door of this process",
            );
        }
        let is_node =
            file.get(File::CLUSTER).is_some_and(|cluster| cluster.given(Cluster::CONTROLLERS));
        if is_node && !from_controllers {
            warn(
                "a node orders certificates for itself (controllers share theirs), and verification fails where the name \
                 leads to another machine at that moment; accepted without doubt: `acme.from-controllers`, and names that \
                 lead to this node alone",
            );
        }
    }
}
