//! State that a packet changes: pending, touched, loads, turns, counters, log. An explanation only
//! reads it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::abi::{Event, EventKind, How, PENDING_WAYS, SLOTS_MAX, Sender};
use crate::digest::Digest;
use crate::memory::{CpuMemory, Memory};
use crate::packet::AddressBytes;
use crate::reason::Reason;

const SLOT_MASK: u64 = SLOTS_MAX as u64 - 1;

/// Answers of one kind that may be given at once, beyond the steady rate.
const BURST_ANSWERS: u64 = 8;

/// Access to the state, for one packet on one CPU.
pub(super) struct State<'a> {
    memory: &'a Memory,
    cpu: &'a CpuMemory,
    /// Otherwise nothing is written.
    writes: bool,
}

/// Result of recording a flow in pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is recorded now.
    New,
    /// It was already, with this slot.
    Old(u16),
    /// There is no room for it.
    Full,
}

/// The answers that have a rate limit.
#[derive(Clone, Copy)]
pub(super) enum Limited {
    Echo,
    TooBig,
}

impl<'a> State<'a> {
    pub(super) fn new(memory: &'a Memory, cpu: usize, writes: bool) -> State<'a> {
        State { memory, cpu: &memory.cpus[cpu], writes }
    }

    /// All that is shared with the program.
    pub(super) fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Whether anything is written.
    pub(super) fn writes(&self) -> bool {
        self.writes
    }

    fn pending_line(&self, digest: Digest) -> &[AtomicU64] {
        let pending = self.memory.state.pending();
        let line = digest.0 as usize & (pending.len() / PENDING_WAYS - 1);
        &pending[line * PENDING_WAYS..][..PENDING_WAYS]
    }

    /// The slot that the flow is recorded with.
    pub(super) fn pending_find(&self, digest: Digest) -> Option<u16> {
        self.pending_line(digest)
            .iter()
            .map(|word| word.load(Acquire))
            .find(|word| is_of(*word, digest))
            .map(slot_of)
    }

    /// Records a flow of a service number, unless it is recorded.
    pub(super) fn pending_put(&self, service: u16, digest: Digest, slot: u16) -> Put {
        if let Some(slot) = self.pending_find(digest) {
            return Put::Old(slot);
        }
        let recorded = (digest.0 & !SLOT_MASK) | u64::from(slot);
        if recorded == 0 {
            return Put::Full;
        }
        for (way, word) in self.pending_line(digest).iter().enumerate() {
            if !self.writes {
                if word.load(Relaxed) == 0 {
                    return Put::New;
                }
                continue;
            }
            match word.compare_exchange(0, recorded, AcqRel, Acquire) {
                Ok(_) => {
                    self.count_pending(service, digest, way);
                    return Put::New;
                }
                Err(found) if is_of(found, digest) => return Put::Old(slot_of(found)),
                Err(_) => {}
            }
        }
        Put::Full
    }

    /// Counts a flow that was recorded at `way` of its line.
    fn count_pending(&self, service: u16, digest: Digest, way: usize) {
        let state = &self.memory.state;
        let services = state.pending_services();
        let line = digest.0 as usize & (services.len() / PENDING_WAYS - 1);
        services[line * PENDING_WAYS + way].store(service, Relaxed);
        state.pending_count().fetch_add(1, Relaxed);
        state.pending_share(usize::from(service))[0].fetch_add(1, Relaxed);
    }

    /// Whether more flows of a service number may be recorded.
    pub(super) fn pending_has_room(&self, service: u16) -> bool {
        let state = &self.memory.state;
        let [count, share, reserved] =
            state.pending_share(usize::from(service)).map(|word| word.load(Relaxed));
        count < share
            || state.pending_count().load(Relaxed).wrapping_add(reserved)
                < state.pending_mark().load(Relaxed)
    }

    /// The next turn of a sequence.
    pub(super) fn turn(&self, cursor: u16) -> u32 {
        let cursor = self.memory.state.cursor(usize::from(cursor));
        if self.writes { cursor.fetch_add(1, Relaxed) } else { cursor.load(Relaxed) }
    }

    /// Active and inactive connections of a backend index.
    pub(super) fn load(&self, backend: u32) -> [u32; 2] {
        self.memory.state.load(backend as usize).map(|count| count.load(Relaxed))
    }

    /// Counts a connection that opens, as an active one.
    pub(super) fn add_opening(&self, backend: u32) {
        if self.writes {
            self.memory.state.load(backend as usize)[0].fetch_add(1, Relaxed);
        }
    }

    /// Records that the flow was seen, or ends. After a batch of packets, new flows are reported to
    /// userspace.
    pub(super) fn learn(&self, service: u16, digest: Digest, slot: u16, how: How, kind: EventKind) {
        if !self.writes {
            return;
        }
        let event =
            Event { digest: digest.0, slot, service, kind: kind as u8, how: how as u8, padding: 0 };
        if self.cpu.append(event) {
            self.tell_batch();
        }
    }

    /// Notes where a SYN went.
    pub(super) fn note_opening(&self, service: u16, digest: Digest, slot: u16, how: How) {
        if self.writes {
            self.memory.state.note_opening(digest.0, slot, service, how as u8);
        }
    }

    /// Tells of the flows that were not known before the batch, and of those that end in it with
    /// what follows.
    fn tell_batch(&self) {
        let batch: Vec<(Event, bool)> = self.cpu.batch().collect();
        let state = &self.memory.state;
        let is_known =
            |(event, _): &(Event, bool)| state.touched_by(event.digest).place().is_some();
        let known: Vec<bool> = batch.iter().map(is_known).collect();
        let mut ended = Vec::new();
        for ((event, is_taken), is_known) in batch.into_iter().zip(known) {
            let ends = event.kind != EventKind::Touch as u8;
            if ends {
                ended.push(event.digest);
            }
            if !is_known || ended.contains(&event.digest) {
                self.tell(event, is_taken);
            }
        }
    }

    /// Logs the first packet of a flow in this interval, and a packet that ends one, unless
    /// userspace has taken the event.
    fn tell(&self, event: Event, is_taken: bool) {
        let touched = self.memory.state.touched_by(event.digest);
        let is_known = touched.place().is_some();
        let ends = event.kind != EventKind::Touch as u8;
        let is_news = (ends || !is_known) && !is_taken;
        let is_logged = is_news && self.cpu.push(event);
        if is_news && !is_logged {
            self.count(Some(event.service), Reason::LogFull);
        }
        if ends {
            touched.clear();
        } else if !is_known && is_logged {
            touched.add();
        }
    }

    /// Counts a drop or a note; `None`: of no service.
    pub(super) fn count(&self, service: Option<u16>, reason: Reason) {
        if self.writes {
            add(&self.cpu.reasons(service.map(usize::from))[reason as usize], 1);
        }
    }

    /// Records the way back to a client: its MAC address, the interface's, and the interface.
    pub(super) fn note_sender(&self, index: usize, sender: &Sender) {
        if self.writes {
            let words = self.memory.state.sender(index);
            let (bytes, _) = sender.as_bytes().as_chunks::<8>();
            for (word, bytes) in words.iter().zip(bytes) {
                word.store(u64::from_ne_bytes(*bytes), Relaxed);
            }
        }
    }

    /// Returns the interface by which a client's packets come, if it is known.
    pub(super) fn sender_ifindex(&self, index: usize, address: &AddressBytes) -> Option<u32> {
        let words = self.memory.state.sender(index);
        let (known, _) = address.as_chunks::<8>();
        let mut known = known.iter().zip(words);
        let is_it = known.all(|(known, word)| word.load(Relaxed) == u64::from_ne_bytes(*known));
        is_it.then(|| (words[3].load(Relaxed) >> 32) as u32)
    }

    /// Counts a packet that is dropped after its backend was chosen.
    pub(super) fn count_backend_drop(&self, backend: u16) {
        if self.writes {
            add(self.cpu.backend_drop_counter(usize::from(backend)), 1);
        }
    }

    /// Counts a packet on its way to a backend.
    pub(super) fn count_forwarded(&self, service: u16, backend: u16, how: How, bytes: usize) {
        if !self.writes {
            return;
        }
        let counters = [
            self.cpu.service_counter(usize::from(service)),
            self.cpu.backend_counter(usize::from(backend)),
        ];
        for counter in counters {
            add(&counter[0], 1);
            add(&counter[1], bytes as u64);
        }
        add(&self.cpu.hows(usize::from(service))[how as usize], 1);
    }

    /// Whether one more answer fits the rate.
    ///
    /// # Source
    /// Generic cell rate algorithm, ITU-T I.371 (virtual scheduling).
    pub(super) fn admits(&self, limited: Limited, per_second: u32, now_ns: u64) -> bool {
        let Some(interval_ns) = 1_000_000_000u64.checked_div(u64::from(per_second)) else {
            return false;
        };
        let at_ns = &self.cpu.tokens_at_ns()[limited as usize];
        let next_ns = at_ns.load(Relaxed).max(now_ns);
        if next_ns - now_ns > interval_ns * BURST_ANSWERS {
            return false;
        }
        if self.writes {
            at_ns.store(next_ns + interval_ns, Relaxed);
        }
        true
    }
}

fn is_of(word: u64, digest: Digest) -> bool {
    word != 0 && (word ^ digest.0) & !SLOT_MASK == 0
}

fn slot_of(word: u64) -> u16 {
    (word & SLOT_MASK) as u16
}

/// Only this CPU writes the counter.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}
