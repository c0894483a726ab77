//! The tabs: a table for each level that the process has.

mod backends;
mod control;
mod doors;
mod outer;

use std::collections::VecDeque;

use equipoise_api::wire::events::{Event, EventLevel};

use super::reading::Reading;
use super::sheet::{Row, Sheet, Value, left};
use crate::table::Tone;

/// A tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tab {
    Dns,
    Packet,
    Session,
    Dispatch,
    Backends,
    Slices,
    Nodes,
    Events,
}

impl Tab {
    pub(super) fn title(self) -> &'static str {
        match self {
            Tab::Dns => "DNS",
            Tab::Packet => "Packet",
            Tab::Session => "Session",
            Tab::Dispatch => "Dispatch",
            Tab::Backends => "Backends",
            Tab::Slices => "Slices",
            Tab::Nodes => "Nodes",
            Tab::Events => "Events",
        }
    }

    /// The tabs of a process, in the order in which work passes the levels.
    pub(super) fn of(reading: &Reading) -> Vec<Tab> {
        let status = &reading.status;
        let has = [
            (Tab::Dns, status.dns.is_some()),
            (Tab::Packet, status.packet.is_some()),
            (Tab::Session, !status.front_doors.is_empty()),
            (Tab::Dispatch, status.front_doors.iter().any(|door| door.dispatch.is_some())),
            (Tab::Backends, !status.pools.is_empty()),
            (Tab::Slices, !status.streams.is_empty()),
            (Tab::Nodes, status.cluster.is_some() || !reading.nodes.is_empty()),
            (Tab::Events, true),
        ];
        has.into_iter().filter_map(|(tab, has)| has.then_some(tab)).collect()
    }

    /// Its table, not yet arranged.
    pub(super) fn sheet(self, reading: &Reading, events: &VecDeque<Event>) -> Sheet {
        match self {
            Tab::Dns => outer::dns(&reading.status),
            Tab::Packet => outer::packet(&reading.status),
            Tab::Session => doors::session(&reading.status),
            Tab::Dispatch => doors::dispatch(&reading.status),
            Tab::Backends => backends::backends(&reading.status),
            Tab::Slices => control::slices(&reading.streams),
            Tab::Nodes => control::nodes(reading),
            Tab::Events => self::events(events),
        }
    }
}

/// The newest event first.
fn events(events: &VecDeque<Event>) -> Sheet {
    let mut sheet =
        Sheet::new(&[left("TIME", 0), left("TYPE", 1), left("SUBJECT", 2), left("EVENT", 0)]);
    for event in events.iter().rev() {
        let tone = match event.level {
            EventLevel::Info => Tone::Plain,
            EventLevel::Warning => Tone::Warning,
            EventLevel::Error => Tone::Bad,
        };
        sheet.add(Row {
            id: event.id.clone(),
            values: vec![
                Value::text(time(&event.time)),
                Value::text(&event.kind),
                Value::text(&event.subject),
                Value::text(&event.words).toned(tone),
            ],
            trouble: 0,
            target: None,
            question: String::new(),
        });
    }
    sheet
}

/// The time of day in RFC 3339, without its fraction.
fn time(text: &str) -> &str {
    text.get(11..19).unwrap_or(text)
}
