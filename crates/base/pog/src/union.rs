//! Union-find over the cells: finds cycles, components, and values for all cells, in expected
//! linear time.
//!
//! A parent never has a higher index than its child. Thus one pass in order of index suffices: the
//! parent of a cell is done before the cell. Indices are random, which keeps the trees as low as
//! random linking would.

use crate::block::{self, Block};
use crate::cell::Cell;
use crate::form::Form;
use crate::hash::{KeyHash, Seed, random_at};
use crate::key::Key;
use crate::memory::prefetch;
use crate::pog::Pog;

/// Prefetch distance of the passes over all cells, in cells.
const AHEAD: usize = 24;

/// Gives every cell of `pog` a value such that each key has its tau and everything else is random:
/// `secret` determines the root of every component, including isolated cells.
///
/// `parents` is working memory, one entry per cell.
///
/// # Errors
/// The position of a key that closes a cycle; the cells are then unspecified.
pub(crate) fn assign<C: Cell, H: KeyHash, F: Form, K: Key>(
    pog: &mut Pog<C, H, F>,
    keys: &[K],
    taus: &[C],
    parents: &mut [u32],
    secret: Seed,
) -> Result<(), usize> {
    reset(parents);
    pog.cells.fill(C::default());
    let Pog { hash, form, sizes, cells, .. } = pog;
    let cells = std::cell::Cell::from_mut(&mut cells[..]).as_slice_of_cells();
    let parents = std::cell::Cell::from_mut(parents).as_slice_of_cells();
    let mut cycle = None;
    let fetch = |block: &Block| {
        for &index in block.a.iter().chain(&block.b) {
            prefetch(parents, index as usize);
            prefetch(cells, index as usize);
        }
    };
    block::ahead(hash, *sizes, keys, fetch, |position, len, block| {
        for at in 0..len {
            let (a, to_a) = find(parents, cells, block.a[at]);
            let (b, to_b) = find(parents, cells, block.b[at]);
            if a == b {
                cycle = Some(position + at);
                return false;
            }
            let salt = form.salt(block.hashes[at]);
            let (parent, child) = if a < b { (a, b) } else { (b, a) };
            parents[child as usize].set(parent);
            cells[child as usize].set(to_a ^ to_b ^ taus[position + at] ^ salt);
        }
        true
    });
    if let Some(position) = cycle {
        return Err(position);
    }
    for index in 0..parents.len() {
        if let Some(ahead) = parents.get(index + AHEAD) {
            prefetch(cells, ahead.get() as usize);
        }
        let parent = parents[index].get() as usize;
        let value = if parent == index {
            C::truncate(random_at(secret, index as u32))
        } else {
            cells[index].get() ^ cells[parent].get()
        };
        cells[index].set(value);
    }
    Ok(())
}

/// Xors every component of the graph of `keys` with a random value: keys keep their taus, and the
/// answers for all other keys change.
pub(crate) fn rebalance<C: Cell, H: KeyHash, F: Form, K: Key>(
    pog: &mut Pog<C, H, F>,
    keys: &[K],
    parents: &mut [u32],
    secret: Seed,
) {
    reset(parents);
    let parents = std::cell::Cell::from_mut(parents).as_slice_of_cells();
    let fetch = |block: &Block| {
        for &index in block.a.iter().chain(&block.b) {
            prefetch(parents, index as usize);
        }
    };
    block::ahead(&pog.hash, pog.sizes, keys, fetch, |_, len, block| {
        for at in 0..len {
            let (a, b) = (root(parents, block.a[at]), root(parents, block.b[at]));
            parents[a.max(b) as usize].set(a.min(b));
        }
        true
    });
    for index in 0..parents.len() {
        if let Some(ahead) = parents.get(index + AHEAD) {
            prefetch(parents, ahead.get() as usize);
        }
        let root = parents[parents[index].get() as usize].get();
        parents[index].set(root);
        pog.cells[index] ^= C::truncate(random_at(secret, root));
    }
}

/// Makes every cell its own root.
fn reset(parents: &mut [u32]) {
    parents.iter_mut().zip(0..).for_each(|(parent, index)| *parent = index);
}

type Shared<'a, T> = &'a [std::cell::Cell<T>];

/// Returns the root of `index`, and the xor of the values on the path to it.
#[inline(always)]
fn find<C: Cell>(parents: Shared<'_, u32>, cells: Shared<'_, C>, mut index: u32) -> (u32, C) {
    let mut sum = C::default();
    loop {
        let parent = parents[index as usize].get();
        if parent == index {
            return (index, sum);
        }
        let above = parents[parent as usize].get();
        if above != parent {
            parents[index as usize].set(above);
            let cell = &cells[index as usize];
            cell.set(cell.get() ^ cells[parent as usize].get());
        }
        sum ^= cells[index as usize].get();
        index = above;
    }
}

#[inline(always)]
fn root(parents: Shared<'_, u32>, mut index: u32) -> u32 {
    loop {
        let parent = parents[index as usize].get();
        if parent == index {
            return index;
        }
        let above = parents[parent as usize].get();
        parents[index as usize].set(above);
        index = above;
    }
}
