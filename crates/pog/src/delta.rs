//! What a change of the controller means for its data planes.

use crate::cell::Cell;

/// One cell to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CellWrite<C> {
    /// Index into A followed by B.
    pub index: u32,
    /// What the cell now holds.
    pub cell: C,
}

/// How much a change touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only the cells that the delta lists.
    Cells,
    /// Everything: seed, sizes or all cells. Data planes take the whole image.
    Whole,
}

/// The cells to write after one change, or one batch of changes.
///
/// Writes are absolute, so that applying one twice does no harm; a later write of a cell replaces an earlier one.
/// All of a delta must become visible at once: between two writes, keys of one component disagree.
#[derive(Clone, Debug)]
pub struct Delta<C> {
    /// Of the image that it changes.
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

    /// Starts an empty delta that leads on from `generation` of the images of `lineage`.
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

    /// The generation of the image that this delta applies to.
    pub fn generation_before(&self) -> u64 {
        self.generation_before
    }

    /// The generation of the image after this delta.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How much changed.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The cells to write, in order; none if the scope is [`Scope::Whole`].
    pub fn writes(&self) -> &[CellWrite<C>] {
        &self.writes
    }
}
