//! The effect of a change on data planes.

use crate::cell::Cell;

/// One cell to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CellWrite<C> {
    /// Index into A followed by B.
    pub index: u32,
    /// New value of the cell.
    pub cell: C,
}

/// Extent of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The cells that the delta lists.
    Cells,
    /// Seed, sizes or all cells: data planes need the whole image.
    Whole,
}

/// The cells to write after one change or one batch of changes.
///
/// Writes are absolute, so applying one twice does no harm. A later write of a cell replaces an
/// earlier one. All writes of a delta must become visible at once: between two writes, keys of one
/// component are inconsistent.
#[derive(Clone, Debug)]
pub struct Delta<C> {
    /// Lineage of the image that it changes.
    pub(crate) lineage: u64,
    pub(crate) generation_before: u64,
    pub(crate) generation: u64,
    pub(crate) scope: Scope,
    pub(crate) writes: Vec<CellWrite<C>>,
}

impl<C: Cell> Delta<C> {
    pub(crate) fn new() -> Delta<C> {
        Delta {
            lineage: u64::MAX,
            generation_before: 0,
            generation: 0,
            scope: Scope::Cells,
            writes: Vec::new(),
        }
    }

    /// Starts an empty delta after `generation` of the images of `lineage`.
    pub(crate) fn restart(&mut self, lineage: u64, generation: u64) {
        self.lineage = lineage;
        self.generation_before = generation;
        self.generation = generation;
        self.scope = Scope::Cells;
        self.writes.clear();
    }

    pub(crate) fn whole(&mut self) {
        self.scope = Scope::Whole;
        self.writes.clear();
    }

    /// Returns the generation of the image that this delta applies to.
    pub fn generation_before(&self) -> u64 {
        self.generation_before
    }

    /// Returns the generation of the image after this delta.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the extent of the change.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the cells to write, in order; empty if the scope is [`Scope::Whole`].
    pub fn writes(&self) -> &[CellWrite<C>] {
        &self.writes
    }
}
