//! Front doors of the session level, and what the dispatch level does at them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use equipoise_api::wire::dispatch::ClassStatus;
use equipoise_api::wire::{FrontDoorStatus, Status};

use super::super::figures::{number, percent};
use super::super::sheet::{Row, Sheet, Value, left, right};

/// A client in examples, with a port (RFC 5737).
pub(super) const CLIENT: &str = "192.0.2.1:40000";

pub(super) fn session(status: &Status) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("FRONT DOOR", 0),
        left("KIND", 5),
        right("REQ/S", 0),
        right("IN FLIGHT", 1),
        right("OPEN", 4),
        right("REFUSED/S", 2),
        right("5XX", 3),
        right("IN/S", 7),
        right("OUT/S", 6),
        left("POOL", 8),
        left("LISTEN", 9),
        left("REFUSALS", 0),
    ]);
    for door in &status.front_doors {
        sheet.add(row(door));
    }
    sheet
}

fn row(door: &FrontDoorStatus) -> Row {
    let is_http = door.protocol == "http";
    let in_flight = if is_http { door.requests_in_flight } else { door.connections_open };
    let (rates, refused) = (&door.rates, door.rates.errors);
    let mut drops: Vec<_> = door.drops.iter().collect();
    drops.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let drops = drops.iter().map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")));
    Row {
        id: door.name.clone(),
        values: vec![
            Value::text(&door.name),
            Value::text(&door.protocol),
            Value::figure(rates.requests, number(rates.requests)),
            Value::count(in_flight),
            Value::count(door.connections_open),
            Value::figure(refused, number(refused)).bad_if(refused > 0.0),
            Value::count(door.responses.server_error).bad_if(door.responses.server_error > 0),
            Value::figure(rates.bytes_in, number(rates.bytes_in)),
            Value::figure(rates.bytes_out, number(rates.bytes_out)),
            Value::text(&door.pool),
            Value::text(&door.listen),
            Value::text(drops.collect::<Vec<_>>().join(", ")),
        ],
        trouble: if refused > 0.0 { 0 } else { 5 },
        target: None,
        question: question(door),
    }
}

/// A question for "Why?" about a client of the front door.
pub(super) fn question(door: &FrontDoorStatus) -> String {
    let Ok(mut address) = door.listen.parse::<SocketAddr>() else { return String::new() };
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    match (&*door.protocol, door.tls.is_some()) {
        ("http", true) => format!("https://{address}/"),
        ("http", false) => format!("http://{address}/"),
        (protocol, _) => format!("{protocol} {CLIENT} {address}"),
    }
}

pub(super) fn dispatch(status: &Status) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("FRONT DOOR/CLASS", 0),
        right("KEPT", 0),
        right("REFUSED", 1),
        right("ARRIVED", 2),
        right("DELEGATED", 2),
        right("TAKEN", 3),
        right("HANDED BACK", 4),
        left("WHY", 0),
    ]);
    for door in &status.front_doors {
        for class in door.dispatch.iter().flat_map(|dispatch| &dispatch.classes) {
            sheet.add(class_row(door, class));
        }
    }
    sheet
}

fn class_row(door: &FrontDoorStatus, class: &ClassStatus) -> Row {
    let id = format!("{}/{}", door.name, class.class);
    let is_planned = door.dispatch.as_ref().is_some_and(|dispatch| dispatch.planned);
    let why = match (class.refuse > 0.0, is_planned) {
        (true, _) => "the whole cluster is overloaded",
        (false, true) => "by the plan",
        (false, false) => "by the file",
    };
    Row {
        values: vec![
            Value::text(&id),
            Value::figure(class.keep, percent(class.keep)),
            Value::figure(class.refuse, percent(class.refuse)).bad_if(class.refuse > 0.0),
            Value::count(class.arrived_total),
            Value::count(class.delegated_total),
            Value::count(class.taken_total),
            Value::count(class.handed_back_total),
            Value::text(why),
        ],
        trouble: if class.refuse > 0.0 { 0 } else { 5 },
        target: None,
        question: question(door),
        id,
    }
}
