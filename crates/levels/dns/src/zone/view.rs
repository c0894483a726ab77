//! Builds the answers of a zone's names as bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::collect::{Collected, Names, Set, is_within};
use super::nested::is_elsewhere;
use crate::message::code::{A, AAAA, CNAME, DS, HINFO, HTTPS, NS, SOA, SVCB, rcode};
use crate::message::name::hash_of;
use crate::message::tail::{
    QUESTION, Section, Tail, TailWriter, Target, name_len, suffixes, target_at,
};
use crate::snapshot::{Entry, Lead, Otherwise, Role};

/// The names of a zone, as input of answers.
pub(super) struct View<'v> {
    names: &'v Names,
    origin: &'v [u8],
    /// The closest served zones below this one.
    below: &'v BTreeSet<&'v [u8]>,
    /// Index of each name's entry.
    places: &'v BTreeMap<&'v [u8], usize>,
    /// Data of the SOA record, and the TTL of negative answers (RFC 2308, 5).
    soa: (Vec<u8>, u32),
}

impl<'v> View<'v> {
    pub(super) fn new(
        names: &'v Names,
        origin: &'v [u8],
        below: &'v BTreeSet<&'v [u8]>,
        places: &'v BTreeMap<&'v [u8], usize>,
    ) -> View<'v> {
        let soa = names.get(origin).and_then(|own| own.sets.get(&SOA));
        let soa = soa.and_then(|set| Some((set.bodies.first()?.clone(), set.ttl)));
        let (body, ttl) = soa.unwrap_or_default();
        let minimum = body.last_chunk().map_or(0, |last| u32::from_be_bytes(*last));
        View { names, origin, below, places, soa: (body, ttl.min(minimum)) }
    }

    pub(super) fn no_such_name(&self) -> Tail {
        let mut tail = TailWriter::below(self.origin);
        tail.record(Section::Authority, self.origin, SOA, self.soa.1, &self.soa.0, true);
        tail.end(true, rcode::NXDOMAIN)
    }

    /// Returns the outermost cut at or above `name`: a delegation by NS records, or the start of a
    /// served zone.
    fn cut<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let above = suffixes(name).map(|(_, suffix)| suffix);
        let above = above.filter(|s| *s != self.origin && is_within(s, self.origin));
        let is_delegated = |s: &&[u8]| self.names.get(*s).is_some_and(|n| n.sets.contains_key(&NS));
        above.filter(|s| is_delegated(s) || self.below.contains(*s)).last()
    }

    /// Returns this zone's answer to DS queries for `zone`, which begins below it. `None`: a zone
    /// in between answers.
    pub(super) fn ds(&self, zone: &[u8]) -> Option<Tail> {
        match self.cut(zone)? {
            cut if cut == zone => {
                let set = self.names.get(zone).and_then(|name| name.sets.get(&DS));
                let ds = set.map(|set| self.positive(zone, false, DS, set));
                Some(ds.unwrap_or_else(|| self.nothing(zone, false)))
            }
            cut if self.below.contains(cut) => None,
            cut => Some(self.referral(cut)),
        }
    }

    pub(super) fn entry(&self, name: &[u8], collected: &Collected) -> Entry {
        let wildcard = [b"\x01*", name].concat();
        let mut entry = Entry {
            name: name.into(),
            hash: hash_of(name),
            zone: 0,
            role: Role::Ours,
            sets: Vec::new(),
            spread: None,
            otherwise: Otherwise::Nothing(Tail::default()),
            any: None,
            wildcard: self.places.get(&wildcard[..]).copied(),
        };
        let is_wildcard = name.starts_with(b"\x01*");
        match self.cut(name) {
            Some(cut) if cut == name => {
                entry.role = Role::Cut;
                entry.otherwise = Otherwise::Referral(self.referral(name));
                let ds = collected.sets.get(&DS).map(|set| self.positive(name, false, DS, set));
                entry.sets.push((DS, ds.unwrap_or_else(|| self.nothing(name, false))));
                return entry;
            }
            Some(cut) => {
                entry.role = Role::BelowCut(self.places.get(cut).copied().unwrap_or_default());
                return entry;
            }
            None => {}
        }
        entry.sets = collected
            .sets
            .iter()
            .map(|(rtype, set)| (*rtype, self.positive(name, is_wildcard, *rtype, set)))
            .collect();
        entry.otherwise = match collected.sets.get(&CNAME) {
            Some(set) => self.alias(name, is_wildcard, set),
            None => Otherwise::Nothing(self.nothing(name, is_wildcard)),
        };
        entry.any = match collected.sets.get(&CNAME) {
            Some(set) => Some(self.positive(name, is_wildcard, CNAME, set)),
            None if collected.sets.is_empty() && collected.balanced.is_none() => None,
            None => Some(minimal_any()),
        };
        entry
    }

    fn writer(name: &[u8], is_wildcard: bool) -> TailWriter {
        if is_wildcard { TailWriter::any() } else { TailWriter::known(name) }
    }

    fn positive(&self, name: &[u8], is_wildcard: bool, rtype: u16, set: &Set) -> Tail {
        let mut tail = View::writer(name, is_wildcard);
        let owner = if is_wildcard { QUESTION } else { name };
        for body in &set.bodies {
            tail.record(Section::Answer, owner, rtype, set.ttl, body, true);
        }
        self.targets(&mut tail, (name, owner), rtype, set);
        tail.end(true, rcode::NOERROR)
    }

    /// Adds the names that the records of `set` point to. `name` owns the records; `owner` stands
    /// for it in the tail.
    fn targets(&self, tail: &mut TailWriter, (name, owner): (&[u8], &[u8]), rtype: u16, set: &Set) {
        let Some(target_at) = target_at(rtype) else { return };
        for body in &set.bodies {
            let Some((head, target)) = body.split_at_checked(target_at) else { continue };
            // Parameters of a service follow the name.
            let target = target[..name_len(target)].to_ascii_lowercase();
            let is_service = matches!(rtype, SVCB | HTTPS);
            let (target, written) = match (&target[..], is_service, head) {
                // RFC 9460, 2.5: the root as target means the owner itself; in an alias it means
                // that no service exists.
                ([0], true, head) if head != [0, 0] => (name, owner),
                ([0], ..) => continue,
                (target, ..) => (target, target),
            };
            if self.cut(target).is_some() {
                self.addresses(tail, target, false);
                continue;
            }
            // RFC 9460, 4.1: for a service, the additional section also has its records at the
            // target.
            let types: &[u16] = match rtype {
                HTTPS if target != name => &[HTTPS, A, AAAA],
                SVCB if target != name => &[SVCB, A, AAAA],
                _ => &[A, AAAA],
            };
            if let (Some(entry), Some(place)) = (self.places.get(target), tail.place_of(written)) {
                tail.target(Target { entry: *entry, place, types });
            }
        }
    }

    /// Adds the zone's addresses of a name at or below a cut.
    fn addresses(&self, tail: &mut TailWriter, name: &[u8], required: bool) {
        let Some(found) = self.names.get(name).filter(|_| !is_elsewhere(name, self.below)) else {
            return;
        };
        for rtype in [A, AAAA] {
            if let Some(set) = found.sets.get(&rtype) {
                tail.additional_set(name, (rtype, set.ttl), &set.bodies, required);
            }
        }
    }

    fn nothing(&self, name: &[u8], is_wildcard: bool) -> Tail {
        let mut tail = View::writer(name, is_wildcard);
        tail.record(Section::Authority, self.origin, SOA, self.soa.1, &self.soa.0, true);
        tail.end(true, rcode::NOERROR)
    }

    fn referral(&self, cut: &[u8]) -> Tail {
        let mut tail = TailWriter::below(cut);
        let empty = Set::default();
        let servers = self.names.get(cut).and_then(|name| name.sets.get(&NS)).unwrap_or(&empty);
        for body in &servers.bodies {
            tail.record(Section::Authority, cut, NS, servers.ttl, body, true);
        }
        let names = servers.bodies.iter().map(|server| server.to_ascii_lowercase());
        let (within, others): (Vec<_>, Vec<_>) = names.partition(|name| is_within(name, cut));
        for server in &within {
            // Required glue: without it, the delegation does not work (RFC 9471, 3.1).
            self.addresses(&mut tail, server, true);
        }
        self.targets(&mut tail, (cut, cut), NS, &Set { ttl: servers.ttl, bodies: others });
        tail.end(false, rcode::NOERROR)
    }

    /// Follows aliases inside the zone (RFC 1034, 4.3.2).
    fn alias(&self, name: &[u8], is_wildcard: bool, set: &Set) -> Otherwise {
        if is_wildcard {
            let plain = self.positive(name, true, CNAME, set);
            return Otherwise::Alias { plain, by_type: Vec::new(), balanced: None };
        }
        let mut chain = vec![(name.to_vec(), set.clone())];
        let target = loop {
            let last = &chain[chain.len() - 1].1;
            let target =
                last.bodies.first().map(|body| body.to_ascii_lowercase()).unwrap_or_default();
            let next = self.names.get(&target).and_then(|found| found.sets.get(&CNAME));
            match next {
                // A loop, or an unreasonably long chain.
                Some(_) if chain.len() > 8 || chain.iter().any(|(known, _)| *known == target) => {
                    break None;
                }
                Some(next) if self.cut(&target).is_none() => chain.push((target, next.clone())),
                _ => break Some(target),
            }
        };
        let start = || {
            let mut tail = TailWriter::known(name);
            for (owner, set) in &chain {
                tail.record(Section::Answer, owner, CNAME, set.ttl, &set.bodies[0], true);
            }
            tail
        };
        let ours = target.filter(|t| is_within(t, self.origin) && self.cut(t).is_none());
        let Some(target) = ours else {
            let plain = start().end(true, rcode::NOERROR);
            return Otherwise::Alias { plain, by_type: Vec::new(), balanced: None };
        };
        let Some(found) = self.names.get(&target) else {
            // A wildcard may match the target: the resolver must query it.
            let covered =
                suffixes(&target).any(|(_, s)| self.names.contains_key(&[b"\x01*", s].concat()));
            let mut tail = start();
            if covered {
                let plain = tail.end(true, rcode::NOERROR);
                return Otherwise::Alias { plain, by_type: Vec::new(), balanced: None };
            }
            tail.record(Section::Authority, self.origin, SOA, self.soa.1, &self.soa.0, true);
            // RFC 6604, 3: the response code is that of the end of the chain.
            let plain = tail.end(true, rcode::NXDOMAIN);
            return Otherwise::Alias { plain, by_type: Vec::new(), balanced: None };
        };
        let by_type = found.sets.iter().map(|(rtype, set)| {
            let mut tail = start();
            for body in &set.bodies {
                tail.record(Section::Answer, &target, *rtype, set.ttl, body, true);
            }
            self.targets(&mut tail, (&target, &target), *rtype, set);
            (*rtype, tail.end(true, rcode::NOERROR))
        });
        let by_type = by_type.collect();
        let balanced = found.balanced.and_then(|_| {
            let lead = start();
            let entry = *self.places.get(&target[..])?;
            let owner = lead.place_of(&target)?.pointer(name.len())?;
            Some(Lead { entry, owner, tail: lead.end(true, rcode::NOERROR) })
        });
        // RFC 2308, 2.2: for a type that the target does not have, the answer is the chain and the
        // SOA record.
        let mut tail = start();
        tail.record(Section::Authority, self.origin, SOA, self.soa.1, &self.soa.0, true);
        Otherwise::Alias { plain: tail.end(true, rcode::NOERROR), by_type, balanced }
    }
}

/// Minimal answer to ANY: a HINFO record that refers to the RFC (RFC 8482, 4.2).
fn minimal_any() -> Tail {
    const TTL: u32 = 3600;
    let mut tail = TailWriter::any();
    tail.record(Section::Answer, QUESTION, HINFO, TTL, b"\x07RFC8482\x00", true);
    tail.end(true, rcode::NOERROR)
}
