//! The additional section: addresses of the names that an answer points to, so that clients need no
//! further query.
//!
//! A set of records is written as a whole or omitted, because a resolver may cache it as the
//! complete set. A balanced name's set is a random draw anyway, so single nodes of it may be
//! omitted. Neither truncates the response (RFC 2181, section 9).
//!
//! # Source
//! MX: RFC 1035, 3.3.9; SRV: RFC 2782; SVCB and HTTPS: RFC 9460, 4.1.

use rand::Rng;

use crate::message::code::{A, AAAA};
use crate::message::tail::{Tail, Written, pointer_to, target_at};
use crate::snapshot::Snapshot;
use crate::spread::{Chosen, Group, RECORD_HEAD};

/// Adds records to a response with a complete answer section.
pub(super) struct Additional<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The buffer after the question.
    pub(super) out: &'a mut [u8],
    pub(super) written: &'a mut Written,
}

impl Additional<'_> {
    /// Adds records of the names that the records of `tail` point to.
    pub(super) fn of_tail(&mut self, tail: &Tail, name_len: usize, rng: &mut impl Rng) {
        for target in &tail.targets {
            if let Some(owner) = target.place.pointer(name_len) {
                for rtype in target.types {
                    self.set(target.entry, *rtype, (owner, u32::MAX), rng);
                }
            }
        }
    }

    /// Adds records of the names that the chosen members' records point to: `count` records from
    /// byte `at` of the message.
    #[inline]
    pub(super) fn of_members(
        &mut self,
        group: &Group,
        chosen: &Chosen,
        (ttl, mut at, count): (u32, usize, u16),
        rng: &mut impl Rng,
    ) {
        let Some(target_at) = target_at(group.rtype) else { return };
        // Each member of a type with targets has one record.
        for member in chosen.members().take(usize::from(count)) {
            let member = &group.members[member];
            let owner = pointer_to(at + RECORD_HEAD + target_at);
            at += member.records.len();
            if let (Some(host), Some(owner)) = (member.host, owner) {
                for rtype in [A, AAAA] {
                    self.set(host, rtype, (owner, ttl), rng);
                }
            }
        }
    }

    /// Adds an entry's records of one type, with TTLs of at most `ttl_max`. For a balanced name,
    /// adds the records of drawn nodes.
    #[inline]
    fn set(&mut self, entry: usize, rtype: u16, (owner, ttl_max): (u16, u32), rng: &mut impl Rng) {
        let entry = &self.snapshot.fixed.names.entries[entry];
        let room = &mut self.out[self.written.bytes..];
        let spread = entry.spread.and_then(|place| self.snapshot.spreads.get(place));
        if let Some((spread, group)) = spread.and_then(|s| Some((s, s.group(rtype)?))) {
            // RFC 7871, 7.3.1: the additional section is not specific to one network. Therefore no
            // client's load is used, and the short TTL applies to all clients.
            let ttl = spread.ttl_heavy.min(ttl_max);
            let drawn = group.write(&group.draw(rng), (ttl, owner), room, |_| {});
            self.written.bytes += drawn.bytes;
            self.written.counts[2] += drawn.counts[0];
        } else if let Some((_, tail)) = entry.sets.iter().find(|(known, _)| *known == rtype) {
            let (records, count) = tail.answer();
            let Some(room) = room.get_mut(..records.len()) else { return };
            room.copy_from_slice(records);
            patch(room, owner, ttl_max);
            self.written.bytes += records.len();
            self.written.counts[2] += count;
        }
    }
}

/// Replaces the owner of each record, which is a pointer, and limits its TTL.
#[inline]
fn patch(records: &mut [u8], owner: u16, ttl_max: u32) {
    let mut rest = records;
    while let [o1, o2, _, _, _, _, t1, t2, t3, t4, l1, l2, after @ ..] = rest {
        [*o1, *o2] = owner.to_be_bytes();
        let ttl = u32::from_be_bytes([*t1, *t2, *t3, *t4]).min(ttl_max);
        [*t1, *t2, *t3, *t4] = ttl.to_be_bytes();
        let length = usize::from(u16::from_be_bytes([*l1, *l2]));
        rest = after.get_mut(length..).unwrap_or_default();
    }
}
