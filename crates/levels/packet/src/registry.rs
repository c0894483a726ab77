//! The flow registry: every flow known, with its slot, in 16 bytes; in memory or in a file that
//! outlives the process.
//!
//! Open addressing with linear probing over a power of two of entries, at most three quarters full:
//! between 21 and 43 bytes a flow. Deleting shifts what follows back, so that there are no
//! tombstones.
//!
//! A process that is killed at any moment leaves a table that the next one can use: an entry's
//! digest is written after its word, so that no entry is half written, and what a shift leaves (an
//! entry twice, or behind a hole) is put right when the table is taken over.

mod file;
mod flow;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

pub use file::RegistryError;
pub(crate) use flow::SEEN_MASK;
pub use flow::{Evidence, Flow, FlowState};

use crate::digest::Digest;
use crate::memory::Area;

/// Bytes before the entries.
const HEADER_BYTES: usize = 4096;
/// Words of an entry: digest (0: free), then the flow's word.
const ENTRY_WORDS: usize = 2;
/// Entries among which a flow is sought that gives way to another.
const NEIGHBOURS: usize = 64;

/// Last entries that may get flows of the first ones: more than any run of used entries.
const WRAPPED: usize = 1024;

/// Every flow known.
#[derive(Debug)]
pub struct Registry {
    area: Arc<Area>,
    /// Entries, less one; a power of two.
    mask: usize,
    /// A digest's entry is its upper bits.
    shift: u32,
    flows_max: u32,
    len: usize,
    /// Flows of a larger file before for which there was no room.
    left_out: usize,
}

/// Decision about a flow in [`Registry::sweep`].
pub(crate) enum Verdict {
    /// It stays as it is.
    Keep,
    /// It becomes this; its digest stays.
    Set(Flow),
    /// It is forgotten.
    Remove,
}

/// There is no room for one more flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

fn entries_for(flows: u32) -> usize {
    (flows as usize * 4).div_ceil(3).next_power_of_two().max(16)
}

fn bytes_for(flows: u32) -> usize {
    HEADER_BYTES + entries_for(flows) * ENTRY_WORDS * size_of::<u64>()
}

impl Registry {
    /// For `flows` flows, in memory of this process.
    ///
    /// # Errors
    /// If the system has no such memory.
    pub fn anonymous(flows: u32) -> io::Result<Registry> {
        Ok(Registry::over(Arc::new(Area::anonymous(bytes_for(flows))?), flows))
    }

    /// Uses an area of [`bytes_for`] `flows_max` flows, with entries that are free or valid.
    fn over(area: Arc<Area>, flows_max: u32) -> Registry {
        let entries = entries_for(flows_max);
        let shift = u64::BITS - entries.trailing_zeros();
        Registry { area, mask: entries - 1, shift, flows_max, len: 0, left_out: 0 }
    }

    /// Flows that there is room for.
    pub fn flows_max(&self) -> u32 {
        self.flows_max
    }

    /// Flows known.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Flows of a larger file before that are not known for want of room.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether no flow is known.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.area.len()
    }

    /// Number of the interval, kept with the flows because these count in it.
    pub(crate) fn interval(&self) -> &AtomicU64 {
        &self.area.words(file::INTERVAL_OFFSET, 1)[0]
    }

    /// Entries, used or free.
    pub(crate) fn entries(&self) -> usize {
        self.mask + 1
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        self.area.words(HEADER_BYTES, (self.mask + 1) * ENTRY_WORDS)
    }

    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        (digest >> self.shift) as usize
    }

    /// Fetches where a flow is looked up first.
    #[inline(always)]
    pub(crate) fn prefetch(&self, digest: Digest) {
        let word = &self.words()[self.home(digest.0) * ENTRY_WORDS];
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching reads nothing that the program sees, and the address is inside the
        // mapping.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = word;
    }

    /// Where a flow is, or the free entry where it would be.
    #[inline(always)]
    fn find(&self, digest: u64) -> Result<usize, usize> {
        let words = self.words();
        let mut at = self.home(digest);
        loop {
            match words[at * ENTRY_WORDS].load(Relaxed) {
                0 => return Err(at),
                found if found == digest => return Ok(at),
                _ => at = (at + 1) & self.mask,
            }
        }
    }

    #[inline(always)]
    fn at(&self, at: usize) -> Option<Flow> {
        let words = self.words();
        let digest = words[at * ENTRY_WORDS].load(Relaxed);
        let word = words[at * ENTRY_WORDS + 1].load(Relaxed);
        (digest != 0).then(|| Flow::of(Digest(digest), word))
    }

    pub(crate) fn get(&self, digest: Digest) -> Option<Flow> {
        self.find(digest.0).ok().and_then(|at| self.at(at))
    }

    /// Adds or replaces a flow.
    pub(crate) fn set(&mut self, flow: Flow) -> Result<(), Full> {
        match self.find(flow.digest.0) {
            Ok(at) => self.words()[at * ENTRY_WORDS + 1].store(flow.word(), Relaxed),
            // A digest of 0 marks free entries; one flow in 2^64 is not learnt for it.
            Err(_) if self.len >= self.flows_max as usize || flow.digest.0 == 0 => {
                return Err(Full);
            }
            Err(at) => {
                let words = self.words();
                words[at * ENTRY_WORDS + 1].store(flow.word(), Relaxed);
                words[at * ENTRY_WORDS].store(flow.digest.0, Release);
                self.len += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, digest: Digest) -> Option<Flow> {
        let at = self.find(digest.0).ok()?;
        let flow = self.at(at);
        self.remove_at(at);
        flow
    }

    /// Frees an entry, and moves back into the hole what was probed past it.
    fn remove_at(&mut self, mut hole: usize) {
        let words = self.words();
        let mut next = hole;
        loop {
            next = (next + 1) & self.mask;
            let digest = words[next * ENTRY_WORDS].load(Relaxed);
            if digest == 0 {
                break;
            }
            let probed = next.wrapping_sub(self.home(digest)) & self.mask;
            if probed >= next.wrapping_sub(hole) & self.mask {
                let word = words[next * ENTRY_WORDS + 1].load(Relaxed);
                words[hole * ENTRY_WORDS].store(0, Release);
                words[hole * ENTRY_WORDS + 1].store(word, Release);
                words[hole * ENTRY_WORDS].store(digest, Release);
                hole = next;
            }
        }
        words[hole * ENTRY_WORDS].store(0, Release);
        self.len -= 1;
    }

    /// The flows near the place of `digest`: a sample of all flows, since digests are hashes.
    pub(crate) fn neighbours(&self, digest: Digest) -> impl Iterator<Item = Flow> {
        let home = self.home(digest.0);
        (home..home + NEIGHBOURS.min(self.entries())).filter_map(|at| self.at(at & self.mask))
    }

    /// Returns the flow of the `step`th entry, counted from the last one down. After the first
    /// entry, a part of the last ones follows again.
    ///
    /// A removal moves flows to lower entries, or from the first to the last ones. So steps that
    /// rise meet every flow that is known throughout, whatever is removed between them.
    pub(crate) fn at_step(&self, step: usize) -> Option<Flow> {
        self.at((2 * self.entries() - 1 - step) & self.mask)
    }

    /// Number of steps of [`Self::at_step`].
    pub(crate) fn steps(&self) -> usize {
        self.entries() + WRAPPED.min(self.entries())
    }

    /// Calls `each` with the flows of `count` entries from entry `from` on, and applies the
    /// decision. Returns the next entry; 0 after the last. A flow may occur twice; none is omitted.
    pub(crate) fn sweep(
        &mut self,
        from: usize,
        count: usize,
        mut each: impl FnMut(Flow) -> Verdict,
    ) -> usize {
        let end = from.saturating_add(count).min(self.entries());
        let mut at = from;
        while at < end {
            match self.at(at).map(&mut each) {
                None | Some(Verdict::Keep) => at += 1,
                Some(Verdict::Set(flow)) => {
                    self.words()[at * ENTRY_WORDS + 1].store(flow.word(), Relaxed);
                    at += 1;
                }
                // Another flow may be here now.
                Some(Verdict::Remove) => self.remove_at(at),
            }
        }
        if end == self.entries() { 0 } else { end }
    }

    /// All flows, in no order that lasts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Flow> {
        self.words().chunks_exact(ENTRY_WORDS).filter_map(|entry| {
            let digest = entry[0].load(Relaxed);
            (digest != 0).then(|| Flow::of(Digest(digest), entry[1].load(Relaxed)))
        })
    }

    /// Returns the results of `of` for all pinned flows, or for all others.
    ///
    /// It has no branch per entry, because free entries are unpredictable and a misprediction costs
    /// more than the rest.
    pub(crate) fn select<T: Copy>(&self, pinned: bool, of: impl Fn(Flow) -> T) -> Vec<T> {
        let mut selected = vec![of(Flow::of(Digest(0), 0)); self.len + 1];
        let mut len = 0;
        for entry in self.words().chunks_exact(ENTRY_WORDS) {
            let flow = Flow::of(Digest(entry[0].load(Relaxed)), entry[1].load(Relaxed));
            selected[len] = of(flow);
            len += usize::from((flow.digest.0 != 0) & (flow.pinned == pinned));
        }
        selected.truncate(len);
        selected
    }

    /// Counts the flows, and puts right what a process that was killed left: an entry twice, or
    /// behind a hole.
    fn repair(&mut self) {
        self.len = self.iter().count();
        let mut at = 0;
        while at < self.entries() {
            let Some(flow) = self.at(at) else {
                at += 1;
                continue;
            };
            match self.find(flow.digest.0) {
                Ok(found) if found == at => at += 1,
                Ok(_) => self.remove_at(at),
                Err(_) => {
                    self.remove_at(at);
                    // There is room: the flow's own.
                    let _ = self.set(flow);
                }
            }
        }
    }
}
