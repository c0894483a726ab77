//! Builds front doors: `[[session]]`, and the options that `[[dispatch]]` shares with it.

use std::net::SocketAddr;

use equipoise_session::config::{ClientTimeouts, Forwarded, FrontDoor, Limits};

use super::problem::Findings;
use super::text::Listen;
use super::values::{Values, chosen};
use super::{Surroundings, door_tls, tables};

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
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Vec<FrontDoor> {
    let addresses = listen_addresses(door);
    let is_one = addresses.len() == 1;
    let tls = door_tls::of_door(door, around, findings);
    let doors = addresses.into_iter().filter_map(|listen| front_door(door, listen, is_one));
    doors.map(|door| FrontDoor { tls: tls.clone(), ..door }).collect()
}

fn front_door(door: &Values, listen: SocketAddr, is_one: bool) -> Option<FrontDoor> {
    let protocol = door.choice("protocol", &tables::PROTOCOL)?;
    let unnamed = FrontDoor::new(listen, protocol, door.text("pool")?);
    let name = match door.text("name") {
        Some(name) if is_one => name.into(),
        Some(name) => format!("{name}:{listen}").into(),
        None => unnamed.name.clone(),
    };
    Some(FrontDoor {
        name,
        accept_proxy: door.flag("accept-proxy"),
        responses: door.number("responses").and_then(|number| u32::try_from(number).ok()),
        ..http_door(door, unnamed)
    })
}

fn prefixes<'v>(
    values: &'v Values,
    name: &str,
) -> impl Iterator<Item = (std::net::IpAddr, u8)> + use<'v> {
    values.texts(name).unwrap_or_default().iter().filter_map(|text| tables::dns_prefix(text))
}

fn forwarded(door: &Values) -> Forwarded {
    let fields = door.texts("forwarded").unwrap_or_default();
    let has = |name: &str| fields.iter().any(|field| field == name);
    Forwarded {
        x_forwarded_for: has("x-forwarded-for"),
        x_forwarded_proto: has("x-forwarded-proto"),
        x_forwarded_host: has("x-forwarded-host"),
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
        },
        trusted: prefixes(door, "trusted").collect(),
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
