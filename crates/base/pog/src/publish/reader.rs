//! The reader of the shared memory.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU64};

use thiserror::Error;

use super::epoch::EpochWord;
use super::layout::{CopyHeader, Header, SharedSizes};
use super::region::Region;
use crate::cell::Cell;
use crate::form::{Fingerprint, Form, Plain};
use crate::hash::{KeyHash, Seed, SipHash13};
use crate::hosts::{HostId, NO_HOST};
use crate::key::Key;

/// This program cannot read the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No publisher has set it up.
    #[error("the shared memory holds no POG of this layout (yet): start its publisher first")]
    NotSetUp,
    /// The publisher's mapping is read-only.
    #[error("the shared memory is mapped for reading: map it with Access::Write")]
    ReadOnly,
    /// Cell, hash or form differ.
    #[error("the shared memory was set up with {what} {given}, and this program reads {wanted}")]
    Kind {
        /// The differing property.
        what: &'static str,
        /// Value in the memory.
        given: u32,
        /// Value in this program.
        wanted: u32,
    },
    /// The file was truncated or replaced.
    #[error("the shared memory has {given} bytes where its header says {wanted}")]
    Length {
        /// Size of the memory, bytes.
        given: usize,
        /// Size according to the header, bytes.
        wanted: usize,
    },
}

/// The two copies in a region.
#[derive(Debug)]
pub(super) struct Copies<C, H, F> {
    region: Arc<Region>,
    sizes: SharedSizes,
    form: F,
    kinds: PhantomData<(C, H)>,
}

impl<C, H, F: Clone> Clone for Copies<C, H, F> {
    fn clone(&self) -> Self {
        let (region, form) = (self.region.clone(), self.form.clone());
        Copies { region, sizes: self.sizes, form, kinds: PhantomData }
    }
}

/// One of the two copies.
pub(super) struct Copy<'a, C: Cell> {
    pub(super) header: &'a CopyHeader,
    pub(super) entries: &'a [AtomicU16],
    pub(super) a: &'a [C::Atomic],
    pub(super) b: &'a [C::Atomic],
    pub(super) extra: &'a [AtomicU64],
}

impl<C: Cell, H: KeyHash, F: Form> Copies<C, H, F> {
    pub(super) fn new(region: Arc<Region>, sizes: SharedSizes, form: F) -> Copies<C, H, F> {
        Copies { region, sizes, form, kinds: PhantomData }
    }

    pub(super) fn open(region: Arc<Region>, form: F) -> Result<Copies<C, H, F>, OpenError> {
        if !region.is_set_up() {
            return Err(OpenError::NotSetUp);
        }
        let header = &region.array::<Header>(0, 1)[0];
        let kinds = [
            ("bytes in a cell:", header.cell_bytes, size_of::<C>() as u32),
            ("hash number", header.hash_id, H::ID),
            ("bits of tau:", header.tau_bits, form.tau_bits::<C>()),
        ];
        if let Some((what, given, wanted)) =
            kinds.into_iter().find(|(_, given, wanted)| given != wanted)
        {
            return Err(OpenError::Kind { what, given, wanted });
        }
        let Header { cells_max, entries_max, extra_bytes, .. } = *header;
        let sizes = SharedSizes { cells_max, entries_max, extra_bytes };
        let (given, wanted) = (region.len(), sizes.bytes::<C>());
        if given < wanted || header.copy_bytes != sizes.copy_bytes::<C>() as u64 {
            return Err(OpenError::Length { given, wanted });
        }
        Ok(Copies::new(region, sizes, form))
    }

    pub(super) fn header(&self) -> &Header {
        &self.region.array::<Header>(0, 1)[0]
    }

    pub(super) fn sizes(&self) -> SharedSizes {
        self.sizes
    }

    pub(super) fn form(&self) -> F {
        self.form
    }

    #[inline(always)]
    pub(super) fn copy(&self, which: usize) -> Copy<'_, C> {
        let start = size_of::<Header>() + which * self.sizes.copy_bytes::<C>();
        let cells_max = self.sizes.cells_max as usize;
        Copy {
            header: &self.region.array::<CopyHeader>(start, 1)[0],
            entries: self
                .region
                .array(start + self.sizes.entries_offset(), self.sizes.entries_max as usize),
            a: self.region.array(start + self.sizes.a_offset(), cells_max),
            b: self.region.array(start + self.sizes.b_offset::<C>(), cells_max),
            extra: self.region.array(
                start + self.sizes.extra_offset::<C>(),
                self.sizes.extra_bytes as usize / size_of::<AtomicU64>(),
            ),
        }
    }
}

/// Looks up keys in the images that a [`Publisher`](super::Publisher) publishes. It has no state,
/// so threads may share one.
#[derive(Debug)]
pub struct Reader<C: Cell = u16, H: KeyHash = SipHash13, F: Form = Plain> {
    copies: Copies<C, H, F>,
}

impl<C: Cell, H: KeyHash, F: Form> Clone for Reader<C, H, F> {
    fn clone(&self) -> Self {
        Reader { copies: self.copies.clone() }
    }
}

/// A consistent view of one copy during a lookup.
pub struct View<'a, C: Cell, H: KeyHash, F: Form> {
    copy: Copy<'a, C>,
    hash: H,
    form: F,
    a: u32,
    b: u32,
    entries: u32,
    epoch: u64,
}

impl<C: Cell, H: KeyHash, F: Form> Reader<C, H, F> {
    /// Opens a region that a publisher has set up.
    ///
    /// # Errors
    /// [`OpenError`] if it is not set up, or for another cell, hash or form.
    pub fn open(region: Arc<Region>, form: F) -> Result<Reader<C, H, F>, OpenError> {
        Ok(Reader { copies: Copies::open(region, form)? })
    }

    /// Returns the result of `look` on one published image.
    ///
    /// Runs `look` again if an image was published in the meantime. During a run it may see a
    /// mixture of two images, so it must have no side effects and must tolerate inconsistent data.
    /// Keep it shorter than the grace period: some thousand keys.
    #[inline(always)]
    pub fn read<T>(&self, mut look: impl FnMut(&View<'_, C, H, F>) -> T) -> T {
        let epochs = &self.copies.header().epoch;
        loop {
            let epoch = epochs.begin();
            let result = look(&self.view(epoch));
            if epochs.still(epoch) {
                return result;
            }
        }
    }

    #[inline(always)]
    fn view(&self, epoch: u64) -> View<'_, C, H, F> {
        let copy = self.copies.copy(EpochWord::copy(epoch));
        let CopyHeader { k0, k1, a, b, entries, .. } = copy.header;
        let seed = Seed { k0: k0.load(Relaxed), k1: k1.load(Relaxed) };
        // Whatever the memory contains, no index exceeds the arrays.
        let a = a.load(Relaxed).min(copy.a.len() as u32);
        let b = b.load(Relaxed).min(copy.b.len() as u32);
        let entries = entries.load(Relaxed).min(copy.entries.len() as u32);
        View { hash: H::with_seed(seed), form: self.copies.form, a, b, entries, epoch, copy }
    }
}

impl<C: Cell, H: KeyHash> Reader<C, H, Plain> {
    /// Returns the tau of `key`, like [`Pog::tau`](crate::Pog::tau).
    #[inline]
    pub fn tau<K: Key + ?Sized>(&self, key: &K) -> C {
        self.read(|view| view.tau(key))
    }

    /// Returns the host of `key`; [`NO_HOST`] if no host table is published.
    #[inline]
    pub fn host<K: Key + ?Sized>(&self, key: &K) -> HostId {
        self.read(|view| view.host_of(view.tau(key)))
    }
}

impl<C: Cell, H: KeyHash> Reader<C, H, Fingerprint> {
    /// Returns the tau of `key` if it is pinned, like [`Pog::pinned`](crate::Pog::pinned).
    #[inline]
    pub fn pinned<K: Key + ?Sized>(&self, key: &K) -> Option<C> {
        self.read(|view| view.pinned(key))
    }
}

impl<C: Cell, H: KeyHash, F: Form> View<'_, C, H, F> {
    #[inline(always)]
    fn value<K: Key + ?Sized>(&self, key: &K) -> C {
        let hash = self.hash.hash(key);
        let a = ((hash & 0xffff_ffff) * u64::from(self.a)) >> 32;
        let b = ((hash >> 32) * u64::from(self.b)) >> 32;
        let cells = C::load(&self.copy.a[a as usize]) ^ C::load(&self.copy.b[b as usize]);
        cells ^ self.form.salt(hash)
    }

    /// Returns the host of `tau`; [`NO_HOST`] if no host table is published.
    #[inline(always)]
    pub fn host_of(&self, tau: C) -> HostId {
        let entry = tau.widen() as u32 & self.entries.wrapping_sub(1);
        // Without a table the mask keeps all bits of tau, and the space of the table may have old
        // contents.
        let shared = self.copy.entries.get(entry as usize).filter(|_| entry < self.entries);
        shared.map_or(NO_HOST, |shared| shared.load(Relaxed))
    }

    /// Returns the publisher's own tables, see
    /// [`Publisher::publish_with`](super::Publisher::publish_with).
    #[inline(always)]
    pub fn extra(&self) -> &[AtomicU64] {
        self.copy.extra
    }

    /// Returns the number of publications.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the generation of the image.
    pub fn generation(&self) -> u64 {
        self.copy.header.generation.load(Relaxed)
    }
}

impl<C: Cell, H: KeyHash> View<'_, C, H, Plain> {
    /// Returns the tau of `key`.
    #[inline(always)]
    pub fn tau<K: Key + ?Sized>(&self, key: &K) -> C {
        self.value(key)
    }
}

impl<C: Cell, H: KeyHash> View<'_, C, H, Fingerprint> {
    /// Returns the tau of `key` if it is pinned.
    #[inline(always)]
    pub fn pinned<K: Key + ?Sized>(&self, key: &K) -> Option<C> {
        let value = self.value(key);
        self.form.matches(value).then_some(value)
    }
}
