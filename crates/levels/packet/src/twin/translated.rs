//! The flows of nat that clients opened by a VIP: `bpf/include/translated.h`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::state::State;
use super::tables::Tables;
use crate::abi::{
    Directory, SERVICE_QUIC, SLOTS_MAX, Service, TRANSLATED_TICK_SHIFT, TRANSLATED_WAYS,
};
use crate::digest::Digest;
use crate::packet::{Parsed, protocol};

const DIGEST_SHIFT: u32 = 30;
const SLOT_SHIFT: u32 = 18;
const TIME_SHIFT: u32 = 2;
const TIME_MASK: u64 = 0xffff;
const STAGE_MASK: u64 = 3;
const KEPT_TICKS: u64 = 16;
const SLOT_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const ASKED: u64 = 1;
const ANSWERED: u64 = 2;
const ESTABLISHED: u64 = 3;

/// Returns the digest of a five-tuple's flow to the backend in a slot.
pub(super) fn digest_at_slot(service: &Service, digest: Digest, slot: u16) -> Digest {
    if service.flags & SERVICE_QUIC == 0 {
        return digest;
    }
    Digest(digest.0.wrapping_add((u64::from(slot) + 1).wrapping_mul(SLOT_STEP)))
}

/// How long flows without packets live, in ticks, for packets of one protocol.
#[derive(Clone, Copy)]
struct Lives {
    established: u64,
    other: u64,
}

/// The table, for one packet.
pub(crate) struct Translated<'a> {
    words: &'a [AtomicU64],
    lives: Lives,
    /// Of any service and protocol: a word does not have those of its flow.
    longest: Lives,
    tick: u64,
    /// The packet ends its flow.
    ends: bool,
    /// The packet is an error about the flow.
    is_error: bool,
    /// Otherwise nothing is written.
    writes: bool,
}

impl<'a> Translated<'a> {
    /// `of` is the protocol of the service's flow, which the packet may be an error about.
    pub(super) fn new(
        state: &State<'a>,
        tables: &Tables<'_>,
        parsed: &Parsed,
        (service, of): (&Service, u8),
        now_ns: u64,
    ) -> Translated<'a> {
        let own = [service.translated_tcp, service.translated_closing, service.translated_udp];
        let [tcp, closing, udp] = own.map(u64::from);
        let lives = match of {
            protocol::UDP => Lives { established: udp, other: udp },
            _ => Lives { established: tcp, other: closing },
        };
        let longest = longest(&tables.directory);
        Translated {
            words: state.memory().translated.words(),
            lives,
            longest,
            tick: (now_ns >> TRANSLATED_TICK_SHIFT) & TIME_MASK,
            ends: parsed.icmp.is_none() && (parsed.is_fin() || parsed.is_rst()),
            is_error: parsed.icmp.is_some(),
            writes: state.writes(),
        }
    }

    /// The table at a time of the kernel's monotonic clock, for flows that other balancers report.
    pub(crate) fn of_other_balancers(
        words: &'a [AtomicU64],
        head: &Directory,
        now_ns: u64,
    ) -> Translated<'a> {
        let longest = longest(head);
        let tick = (now_ns >> TRANSLATED_TICK_SHIFT) & TIME_MASK;
        let (ends, is_error, writes) = (false, false, true);
        Translated { words, lives: longest, longest, tick, ends, is_error, writes }
    }

    /// Records a flow of another balancer to the backend in a slot. This balancer then translates
    /// replies that arrive before the client's next packet.
    pub(crate) fn put_reported(&self, digest: Digest, slot: u16, is_open: bool) {
        let Some(line) = self.line(digest) else { return };
        let stage = if is_open { ESTABLISHED } else { ASKED };
        // A living flow has packets here, and stays.
        let is_free = |word: u64| word == 0 || self.is_over(word, self.longest);
        let other = || self.least(line).filter(|(_, word)| is_free(*word));
        if let Some((at, before)) = known(line, digest).or_else(other) {
            self.change(at, before, self.word(digest, slot, stage));
        }
    }

    /// `None`: there is no memory for flows.
    fn line(&self, digest: Digest) -> Option<&'a [AtomicU64]> {
        let lines = self.words.len() / TRANSLATED_WAYS;
        let line = digest.0 as usize & lines.checked_sub(1)?;
        Some(&self.words[line * TRANSLATED_WAYS..][..TRANSLATED_WAYS])
    }

    fn word(&self, digest: Digest, slot: u16, stage: u64) -> u64 {
        let slot = u64::from(slot) & (SLOTS_MAX as u64 - 1);
        ((digest.0 >> DIGEST_SHIFT) << DIGEST_SHIFT)
            | (slot << SLOT_SHIFT)
            | (self.tick << TIME_SHIFT)
            | stage
    }

    /// Ticks since the flow's last packet. Another CPU may have stored the next tick after this one
    /// read the clock.
    fn age(&self, word: u64) -> u64 {
        let age = self.tick.wrapping_sub(word >> TIME_SHIFT) & TIME_MASK;
        if age == TIME_MASK { 0 } else { age }
    }

    fn is_over(&self, word: u64, lives: Lives) -> bool {
        let is_established = word & STAGE_MASK == ESTABLISHED;
        self.age(word) > if is_established { lives.established } else { lives.other }
    }

    /// How readily a word gives way to another flow's; `None`: not at all.
    fn rank(&self, word: u64) -> Option<u64> {
        let (stage, age) = (word & STAGE_MASK, self.age(word));
        if word == 0 {
            return Some(0);
        }
        if self.is_over(word, self.longest) {
            return Some(1);
        }
        let stays = stage == ESTABLISHED && age < KEPT_TICKS;
        (!stays).then_some(2 + (stage << 16) + TIME_MASK - age)
    }

    /// The word of a line to replace; `None`: every flow stays.
    fn least(&self, line: &'a [AtomicU64]) -> Option<(&'a AtomicU64, u64)> {
        let ranked = line.iter().filter_map(|at| {
            let word = at.load(Acquire);
            Some((self.rank(word)?, at, word))
        });
        // Of equals the first, as in the program.
        let (_, at, before) = ranked.min_by_key(|(rank, ..)| *rank)?;
        Some((at, before))
    }

    /// Returns whether the word differs.
    fn change(&self, at: &AtomicU64, before: u64, after: u64) -> bool {
        if self.writes && before != after {
            // If another CPU was faster, the flow's next packet comes again.
            let _ = at.compare_exchange(before, after, AcqRel, Acquire);
        }
        before != after
    }

    /// Records a client's packet to the backend in a slot. Returns whether the record changed;
    /// `None`: there is no room.
    pub(super) fn put(&self, digest: Digest, slot: u16) -> Option<bool> {
        let line = self.line(digest)?;
        if let Some((at, before)) = known(line, digest) {
            let goes_on = slot_of(before) == slot && !self.ends;
            let stage = match before & STAGE_MASK {
                _ if !goes_on => ASKED,
                ANSWERED => ESTABLISHED,
                stage => stage,
            };
            return Some(self.change(at, before, self.word(digest, slot, stage)));
        }
        let (at, before) = self.least(line)?;
        Some(self.change(at, before, self.word(digest, slot, ASKED)))
    }

    /// Whether the reply of the backend in a slot is of a flow that a client opened by the VIP.
    pub(super) fn find(&self, digest: Digest, slot: u16) -> bool {
        let Some(line) = self.line(digest) else { return false };
        let Some((at, before)) = known(line, digest) else { return false };
        if slot_of(before) != slot || self.is_over(before, self.lives) {
            return false;
        }
        if self.is_error {
            return true;
        }
        let stage = match before & STAGE_MASK {
            _ if self.ends => ASKED,
            ASKED => ANSWERED,
            stage => stage,
        };
        self.change(at, before, self.word(digest, slot, stage));
        true
    }
}

/// The longest lives of any service and protocol.
fn longest(head: &Directory) -> Lives {
    let [tcp, closing, udp] =
        [head.translated_tcp, head.translated_closing, head.translated_udp].map(u64::from);
    Lives { established: tcp.max(udp), other: closing.max(udp) }
}

/// The word of the flow in its line.
fn known(line: &[AtomicU64], digest: Digest) -> Option<(&AtomicU64, u64)> {
    line.iter().map(|at| (at, at.load(Acquire))).find(|(_, word)| is_of(*word, digest))
}

fn is_of(word: u64, digest: Digest) -> bool {
    word != 0 && (word ^ digest.0) >> DIGEST_SHIFT == 0
}

fn slot_of(word: u64) -> u16 {
    ((word >> SLOT_SHIFT) & (SLOTS_MAX as u64 - 1)) as u16
}
