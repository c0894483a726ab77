//! Lengths of the two arrays, and the two cells of a key.

/// Cells per key, in hundredths: the paper's lower bound, and its upper bound (exclusive).
const CELLS_PER_KEY_MIN: u64 = 267;
const CELLS_PER_KEY_END: u64 = 400;

/// Target of a build, in hundredths: near the lower bound, with space for some more keys. A random
/// graph of this density is acyclic with probability 0.7.
const CELLS_PER_KEY_BUILD: u64 = 280;

/// Target of growing and shrinking, in hundredths: the number of keys may then grow by a fifth or
/// shrink by a sixth before the next change of size. Thus each update pays for a bounded part of
/// one, and the bounds always hold.
const CELLS_PER_KEY_RESIZE: u64 = 330;

const _: () = assert!(CELLS_PER_KEY_MIN < CELLS_PER_KEY_BUILD);
const _: () = assert!(CELLS_PER_KEY_BUILD < CELLS_PER_KEY_RESIZE);
const _: () = assert!(CELLS_PER_KEY_RESIZE < CELLS_PER_KEY_END);

/// Maximum number of keys in one POG: the arrays then have 2^32 - 1 cells.
pub const KEYS_MAX: usize = (u32::MAX as u64 * 100 / CELLS_PER_KEY_END) as usize;

/// Lengths of the arrays A and B.
///
/// For every number of keys `n > 0`: `2.67 n <= |A| + |B| < 4 n`. The lengths differ by at most
/// one, which is best for acyclicity. Without keys, each array has one cell.
///
/// # Source
/// SDLB, section "data plane". Deviates: the lengths need not be powers of two (a multiplication
/// computes the index, not a mask). Otherwise the bounds would force a rebuild on each change at
/// some sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    a: u32,
    b: u32,
}

impl Sizes {
    /// Returns the sizes for a build of `keys` keys.
    pub fn for_build(keys: usize) -> Sizes {
        Sizes::with_room(keys, 0)
    }

    /// Returns the sizes for a build of `keys` keys, with space for `room` more as far as the
    /// bounds permit.
    pub fn with_room(keys: usize, room: usize) -> Sizes {
        Sizes::within(keys, CELLS_PER_KEY_BUILD * (keys + room) as u64 / 100)
    }

    /// Returns the sizes for a growing or shrinking table of `keys` keys.
    pub fn for_change(keys: usize) -> Sizes {
        Sizes::of(keys, CELLS_PER_KEY_RESIZE)
    }

    /// Returns the largest sizes of a controller that never has more than `keys` keys: those after
    /// its last resize with all of them. As keys leave, the sizes stay or shrink.
    pub(crate) fn most(keys: usize) -> Sizes {
        Sizes::of(keys, CELLS_PER_KEY_RESIZE)
    }

    fn of(keys: usize, cells_per_key: u64) -> Sizes {
        Sizes::within(keys, cells_per_key * keys as u64 / 100)
    }

    /// Returns the sizes nearest to `cells` within the bounds for `keys` keys.
    fn within(keys: usize, cells: u64) -> Sizes {
        let keys = keys as u64;
        let least = (CELLS_PER_KEY_MIN * keys).div_ceil(100);
        let most = (4 * keys).saturating_sub(1).max(least);
        let cells = cells.clamp(least, most).max(2);
        // KEYS_MAX keeps this below 2^32.
        Sizes { a: cells.div_ceil(2) as u32, b: (cells / 2) as u32 }
    }

    /// Whether these sizes are within the paper's bounds for `keys` keys.
    pub fn fit(&self, keys: usize) -> bool {
        *self == Sizes { a: 1, b: 1 } && keys == 0 || !self.too_small(keys) && !self.too_large(keys)
    }

    pub(crate) fn too_small(&self, keys: usize) -> bool {
        (self.cells() as u64) * 100 < CELLS_PER_KEY_MIN * keys as u64
    }

    pub(crate) fn too_large(&self, keys: usize) -> bool {
        (self.cells() as u64) * 100 >= CELLS_PER_KEY_END * keys as u64 && self.cells() > 2
    }

    /// Makes the sizes that another program sent. `None` if an array is empty or both have 2^32
    /// cells or more.
    pub fn from_lengths(a: u32, b: u32) -> Option<Sizes> {
        (a > 0 && b > 0 && a.checked_add(b).is_some()).then_some(Sizes { a, b })
    }

    /// |A|
    pub fn a(&self) -> u32 {
        self.a
    }

    /// |B|
    pub fn b(&self) -> u32 {
        self.b
    }

    /// |A| + |B|
    pub fn cells(&self) -> usize {
        self.a as usize + self.b as usize
    }

    /// Returns the key's cell of A and its cell of B, as indices into A followed by B.
    ///
    /// The low half of the hash is scaled to A, the high half to B: `half * length / 2^32`.
    #[inline(always)]
    pub fn cells_of(&self, hash: u64) -> (u32, u32) {
        let a = ((hash & 0xffff_ffff) * u64::from(self.a)) >> 32;
        let b = ((hash >> 32) * u64::from(self.b)) >> 32;
        (a as u32, self.a + b as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_within_bounds(sizes: Sizes, keys: usize) {
        let cells = sizes.cells() as f64;
        assert!(
            cells >= 2.67 * keys as f64 && cells < 4.0 * keys as f64,
            "{sizes:?} for {keys} keys"
        );
        assert!(sizes.fit(keys));
        assert!(sizes.a().abs_diff(sizes.b()) <= 1);
    }

    #[test]
    fn the_papers_bounds_hold_for_every_number_of_keys() {
        for (keys, room) in [(1, 0), (1, 1), (1, 100), (1000, 30), (1000, 400), (1000, 100_000)] {
            assert_within_bounds(Sizes::with_room(keys, room), keys);
        }
        assert!(!Sizes::with_room(1000, 400).too_small(1400), "as much room as was asked for");
        let large =
            (17..KEYS_MAX.ilog2()).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for keys in (1..100_000).chain(large).chain([KEYS_MAX]) {
            assert_within_bounds(Sizes::for_build(keys), keys);
            assert_within_bounds(Sizes::for_change(keys), keys);
        }
    }

    #[test]
    fn without_keys_each_array_has_one_cell() {
        for sizes in [Sizes::for_build(0), Sizes::for_change(0)] {
            assert_eq!((sizes.a(), sizes.b()), (1, 1));
            assert!(sizes.fit(0) && !sizes.fit(1));
        }
    }

    #[test]
    fn every_cell_of_an_array_is_reached_and_none_beyond() {
        let sizes = Sizes::from_lengths(5, 3).unwrap();
        assert_eq!(sizes.cells_of(0), (0, 5));
        assert_eq!(sizes.cells_of(u64::MAX), (4, 7));
        let at = |half: u64| sizes.cells_of(half << 32 | half);
        let reached: std::collections::BTreeSet<_> =
            (0..16).flat_map(|part| <[u32; 2]>::from(at(part << 28))).collect();
        assert!(reached.into_iter().eq(0..8));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(Sizes::from_lengths(0, 1), None);
        assert_eq!(Sizes::from_lengths(1, 0), None);
        assert_eq!(Sizes::from_lengths(u32::MAX, 1), None);
    }
}
