//! A CPU's sketches: estimates of flows' bytes.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::CpuMemory;
use crate::abi::{Cpu, HEAVY, Heavy, SKETCH_COLUMNS, SKETCH_LAYOUT, SKETCH_ROWS};

const SKETCH_BYTES: usize = SKETCH_LAYOUT.0;
const CELLS_AT: usize = 64;
const HEAVY_AT: usize = CELLS_AT + SKETCH_ROWS * SKETCH_COLUMNS * size_of::<u32>();
const HEAVY_WORDS: usize = size_of::<Heavy>() / size_of::<u64>();

/// A sketch that the program does not write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketch<'m> {
    words: &'m [AtomicU64],
    cells: &'m [AtomicU32],
}

impl CpuMemory {
    /// Has the program use the other sketch, and returns the one that it used. A packet that is
    /// being processed may still be added.
    pub(crate) fn turn_sketches(&self) -> Sketch<'_> {
        let at = self.start + offset_of!(Cpu, sketch_window);
        let window = &self.area.halves(at, 1)[0];
        let used = window.load(Relaxed) & 1;
        window.store(used ^ 1, Relaxed);
        let at = self.limits.cpu_sketches_offset as usize + used as usize * SKETCH_BYTES;
        let at = self.start + at;
        Sketch {
            words: self.area.words(at, SKETCH_BYTES / 8),
            cells: self.area.halves(at + CELLS_AT, SKETCH_ROWS * SKETCH_COLUMNS),
        }
    }
}

impl Sketch<'_> {
    /// The estimate of a flow's sampled bytes.
    pub(crate) fn estimate(&self, digest: u64) -> u64 {
        let cell = |row: usize| {
            let column = (digest >> (16 * row)) as usize & (SKETCH_COLUMNS - 1);
            self.cells[row * SKETCH_COLUMNS + column].load(Relaxed)
        };
        u64::from((0..SKETCH_ROWS).map(cell).min().unwrap_or_default())
    }

    /// The flows with the largest estimates.
    pub(crate) fn heavy(&self) -> impl Iterator<Item = Heavy> {
        let (entries, _) = self.words[HEAVY_AT / 8..].as_chunks::<HEAVY_WORDS>();
        let entries = entries[..HEAVY].iter();
        let read = |entry: &[AtomicU64; HEAVY_WORDS]| {
            let words = entry.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
            Heavy::from_bytes(words.as_flattened())
        };
        entries.filter_map(read).filter(|heavy| heavy.bytes > 0)
    }

    /// Makes it empty, for the window after the next.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
    }
}
