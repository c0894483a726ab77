//! Zones below zones of the same process.
//!
//! A name is answered from the closest zone that is served, as by other servers, whatever the order of the zones: what a zone
//! above says of names at or below that zone's own is left out, but for DS records, which are the zone's above (RFC 4035, 3.1.4.1).

use std::collections::BTreeSet;

use super::ZoneError;
use super::collect::{host_name, is_within, lower, text};
use crate::Mode;
use crate::config::ZoneConfig;
use crate::message::tail::suffixes;

/// The zones of `origins` that are closest below `origin`, all in lower case.
pub(super) fn served_below<'o>(origins: &'o [Vec<u8>], origin: &[u8]) -> BTreeSet<&'o [u8]> {
    let is_below = |other: &&[u8]| *other != origin && is_within(other, origin);
    let below: BTreeSet<&[u8]> = origins.iter().map(|other| &other[..]).filter(is_below).collect();
    let closest = |zone: &&[u8]| !suffixes(zone).skip(1).any(|(_, above)| below.contains(above));
    below.iter().copied().filter(closest).collect()
}

/// Whether one of the zones `below` answers for `name`.
pub(super) fn is_elsewhere(name: &[u8], below: &BTreeSet<&[u8]>) -> bool {
    suffixes(name).any(|(_, above)| below.contains(above))
}

/// What a zone says of names that zones below it answer for, and that would never be answered.
pub fn check_below(zone: &ZoneConfig, all: &[&ZoneConfig]) -> Vec<ZoneError> {
    let origins: Vec<_> = all.iter().map(|zone| lower(&zone.origin)).collect();
    let origin = lower(&zone.origin);
    let below = served_below(&origins, &origin);
    let hosts = zone.names.iter().filter(|name| matches!(name.mode, Mode::Srv | Mode::Https));
    let hosts = hosts.flat_map(|name| &name.nodes).filter_map(|place| zone.nodes.get(*place));
    let hosts = hosts.filter_map(|node| host_name(&node.name, &origin));
    let mut names: Vec<_> = zone.names.iter().map(|name| lower(&name.name)).chain(hosts).collect();
    names.sort_unstable();
    names.dedup();
    let elsewhere = names.iter().filter_map(|name| {
        let closest = below.iter().find(|below| is_within(name, below))?;
        Some(ZoneError::Elsewhere { name: text(name), zone: text(closest) })
    });
    elsewhere.collect()
}
