//! Zones below other zones of the same process.
//!
//! As in other servers, the closest served zone answers for a name, whatever the order of zones.
//! Records of a parent zone for names at or below a served child zone are ignored, except DS
//! records, which belong to the parent (RFC 4035, 3.1.4.1).

use std::collections::{BTreeSet, HashMap, HashSet};

use super::ZoneError;
use super::collect::{host_name, lower, text};
use crate::Name;
use crate::config::ZoneConfig;
use crate::message::tail::suffixes;

/// The zones of a process by name, with the closest zones below each.
#[derive(Clone, Debug, Default)]
pub struct ZoneTree {
    /// Key: name of the parent zone, in lower case.
    below: HashMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl ZoneTree {
    /// Builds the tree of zones with these names.
    pub fn new<'n>(origins: impl IntoIterator<Item = &'n Name>) -> ZoneTree {
        let origins: HashSet<Vec<u8>> = origins.into_iter().map(lower).collect();
        let mut below = HashMap::<Vec<u8>, BTreeSet<Vec<u8>>>::new();
        for origin in &origins {
            let above = suffixes(origin).skip(1).map(|(_, above)| above);
            let mut above = above.chain((origin != ROOT).then_some(ROOT));
            if let Some(closest) = above.find(|above| origins.contains(*above)) {
                below.entry(closest.to_vec()).or_default().insert(origin.clone());
            }
        }
        ZoneTree { below }
    }

    /// Returns the closest zones below `origin`, all in lower case.
    pub(super) fn below(&self, origin: &[u8]) -> BTreeSet<&[u8]> {
        self.below.get(origin).into_iter().flatten().map(|other| &other[..]).collect()
    }
}

/// The name of the root zone.
const ROOT: &[u8] = &[0];

/// Whether one of the zones `below` answers for `name`.
pub(super) fn is_elsewhere(name: &[u8], below: &BTreeSet<&[u8]>) -> bool {
    answering(name, below).is_some()
}

/// Returns the zone in `below` that answers for `name`.
fn answering<'b>(name: &[u8], below: &BTreeSet<&'b [u8]>) -> Option<&'b [u8]> {
    suffixes(name).find_map(|(_, above)| below.get(above).copied())
}

/// Returns an error for each name of a zone that never takes effect because a zone below answers
/// for it.
pub fn check_below(zone: &ZoneConfig, tree: &ZoneTree) -> Vec<ZoneError> {
    let origin = lower(&zone.origin);
    let below = tree.below(&origin);
    if below.is_empty() {
        return Vec::new();
    }
    let hosts = zone.names.iter().filter(|name| name.mode.has_hosts());
    let hosts = hosts.flat_map(|name| &name.nodes).filter_map(|place| zone.nodes.get(*place));
    let hosts = hosts.filter_map(|node| host_name(&node.name, &origin));
    let mut names: Vec<_> = zone.names.iter().map(|name| lower(&name.name)).chain(hosts).collect();
    names.sort_unstable();
    names.dedup();
    let elsewhere = names.iter().filter_map(|name| {
        let closest = answering(name, &below)?;
        Some(ZoneError::Elsewhere { name: text(name), zone: text(closest) })
    });
    elsewhere.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::collect::is_within;

    #[test]
    fn each_zone_has_the_zones_that_are_closest_below_it() {
        let texts = [
            "example.",
            "a.example.",
            "b.a.example.",
            "d.c.b.example.",
            "b.example.",
            "x.",
            "c.x.",
        ];
        let with_root = [&["."][..], &texts].concat();
        for texts in [&texts[..], &with_root] {
            let names: Vec<Name> = texts.iter().map(|it| it.parse().unwrap()).collect();
            let tree = ZoneTree::new(&names);
            let origins: Vec<_> = names.iter().map(lower).collect();
            for origin in &origins {
                let is_below = |other: &&Vec<u8>| *other != origin && is_within(other, origin);
                let below: Vec<_> = origins.iter().filter(is_below).collect();
                let is_closest = |zone: &&&Vec<u8>| {
                    below.iter().all(|other| other == *zone || !is_within(zone, other))
                };
                let closest: BTreeSet<&[u8]> =
                    below.iter().filter(is_closest).map(|zone| &zone[..]).collect();
                assert_eq!(tree.below(origin), closest, "{}", text(origin));
            }
        }
    }

    /// Takes linear time: a comparison of all pairs would take 400 million steps.
    #[test]
    fn many_zones_have_a_tree_at_once() {
        let names: Vec<Name> =
            (0..20_000).map(|number| format!("z{number}.example.").parse().unwrap()).collect();
        let above: Name = "example.".parse().unwrap();
        let tree = ZoneTree::new(names.iter().chain([&above]));
        assert_eq!(tree.below(&lower(&above)).len(), names.len());
        assert!(names.iter().all(|name| tree.below(&lower(name)).is_empty()));
    }
}
