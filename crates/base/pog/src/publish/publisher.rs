//! The writer of the shared memory.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::epoch::EpochWord;
use super::layout::{CopyHeader, Header, MAGIC, SharedSizes};
use super::reader::{Copies, OpenError};
use super::region::{Access, Region};
use crate::cell::Cell;
use crate::delta::{Delta, Scope};
use crate::form::Form;
use crate::hash::KeyHash;
use crate::hosts::HostTable;
use crate::pog::Pog;

/// Differences between a copy and the image.
#[derive(Debug)]
struct Stale {
    /// Indices of stale cells; `None`: all cells.
    cells: Option<Vec<u32>>,
}

/// Publishes images of a controller to readers in other threads and processes. See
/// [`publish`](crate::publish).
#[derive(Debug)]
pub struct Publisher<C: Cell, H: KeyHash, F: Form> {
    copies: Copies<C, H, F>,
    grace: Duration,
    flipped: Option<Instant>,
    stale: [Stale; 2],
    /// Lineage of the image that `stale` refers to, and the generation after the noted changes.
    lineage: u64,
    noted: u64,
}

/// An image cannot be published. Readers still see the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PublishError {
    /// The region is mapped read-only.
    #[error("the shared memory is mapped for reading: map it with Access::Write")]
    ReadOnly,
    /// The region is too small.
    #[error("the shared memory has {given} bytes and needs {wanted}: see SharedSizes::bytes")]
    Region {
        /// Size of the region, bytes.
        given: usize,
        /// Required size, bytes.
        wanted: usize,
    },
    /// The image exceeds the capacity.
    #[error(
        "an array of the image has {cells} cells and the shared memory room for {room}: set up a larger one by \
         SharedSizes::new"
    )]
    Cells {
        /// Number of cells of the larger array.
        cells: usize,
        /// Capacity of each array.
        room: u32,
    },
    /// The host table exceeds the capacity.
    #[error(
        "the host table has {entries} entries and the shared memory room for {room}: set up a larger one"
    )]
    Entries {
        /// Number of entries of the table.
        entries: usize,
        /// Capacity in entries.
        room: u32,
    },
    /// The publisher's own tables exceed the capacity.
    #[error(
        "the extra tables have {words} words and the shared memory room for {room}: see SharedSizes::with_extra"
    )]
    Extra {
        /// Number of words given.
        words: usize,
        /// Capacity in words.
        room: usize,
    },
    /// The image's form differs from that of the memory.
    #[error("the image has {given} bits of tau and the shared memory was set up for {wanted}")]
    Form {
        /// Bits of tau in the image.
        given: u32,
        /// Bits of tau in the memory.
        wanted: u32,
    },
}

impl<C: Cell, H: KeyHash, F: Form> Publisher<C, H, F> {
    /// Sets up a region and publishes a first image. `grace` is the minimum time before a replaced
    /// copy is overwritten.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn create(
        region: Arc<Region>,
        sizes: SharedSizes,
        grace: Duration,
        image: &Pog<C, H, F>,
        table: Option<&HostTable>,
    ) -> Result<Publisher<C, H, F>, PublishError> {
        let (given, wanted) = (region.len(), sizes.bytes::<C>());
        if region.access() != Access::Write {
            return Err(PublishError::ReadOnly);
        }
        if given < wanted {
            return Err(PublishError::Region { given, wanted });
        }
        let header = region.start().cast::<Header>();
        // SAFETY: the region is writable and larger than a header, and its alignment is sufficient
        // (mappings begin at pages; `borrow` asserts it). Readers do not look beyond `magic` before
        // that confirms the set-up, and there is only one publisher, so this is the only access to
        // the rest. `magic`, which others may be reading, is only written as an atomic.
        unsafe {
            let header = header.as_ptr();
            (*header).magic.store(0, Release);
            let after_magic = offset_of!(Header, cell_bytes);
            header.cast::<u8>().add(after_magic).write_bytes(0, size_of::<Header>() - after_magic);
            (*header).cell_bytes = size_of::<C>() as u32;
            (*header).hash_id = H::ID;
            (*header).tau_bits = image.form.tau_bits::<C>();
            (*header).cells_max = sizes.cells_max;
            (*header).entries_max = sizes.entries_max;
            (*header).first_copy = size_of::<Header>() as u64;
            (*header).copy_bytes = sizes.copy_bytes::<C>() as u64;
            (*header).extra_bytes = sizes.extra_bytes;
        }
        let copies = Copies::new(region, sizes, image.form);
        let mut publisher = Publisher::of(copies, grace);
        publisher.publish(image, table)?;
        publisher.copies.header().magic.store(u64::from_ne_bytes(MAGIC), Release);
        Ok(publisher)
    }

    /// Takes over a region of an earlier publisher that has ended. Readers continue with the
    /// published image.
    ///
    /// # Errors
    /// [`OpenError`] if the region is not set up for this cell, hash and form.
    pub fn attach(
        region: Arc<Region>,
        grace: Duration,
        form: F,
    ) -> Result<Publisher<C, H, F>, OpenError> {
        if region.access() != Access::Write {
            return Err(OpenError::ReadOnly);
        }
        let copies = Copies::open(region, form)?;
        let mut publisher = Publisher::of(copies, grace);
        // The time of the last flip is unknown, so the whole grace period starts now.
        publisher.flipped = Some(Instant::now());
        Ok(publisher)
    }

    fn of(copies: Copies<C, H, F>, grace: Duration) -> Publisher<C, H, F> {
        let all = || Stale { cells: None };
        Publisher {
            copies,
            grace,
            flipped: None,
            stale: [all(), all()],
            lineage: u64::MAX,
            noted: 0,
        }
    }

    /// Records the cells of a change, so that the next publications write only these. Must be
    /// called for every delta in order. If one is missing, publishing detects it and writes
    /// everything.
    pub fn note(&mut self, delta: &Delta<C>) {
        let follows = (delta.lineage, delta.generation_before()) == (self.lineage, self.noted);
        let whole = delta.scope() == Scope::Whole || !follows;
        // With more cells than this, writing everything is as cheap. The limit also bounds the
        // memory of a caller that never publishes.
        let notes_max = self.copies.sizes().cells_max as usize;
        for stale in &mut self.stale {
            match &mut stale.cells {
                Some(cells) if whole || cells.len() + delta.writes().len() > notes_max => {
                    stale.cells = None;
                }
                Some(cells) => cells.extend(delta.writes().iter().map(|write| write.index)),
                None => {}
            }
        }
        self.noted = delta.generation();
    }

    #[cfg(test)]
    pub(super) fn notes(&self) -> usize {
        self.stale.iter().filter_map(|stale| stale.cells.as_ref()).map(Vec::len).sum()
    }

    /// Returns the time from which [`Self::publish`] does not wait.
    pub fn ready_at(&self) -> Option<Instant> {
        self.flipped.map(|flipped| flipped + self.grace)
    }

    /// Publishes an image atomically. Waits for the rest of the grace period since the last
    /// publication. Returns the new epoch.
    ///
    /// # Errors
    /// [`PublishError`] if the image exceeds the capacity or has another form.
    pub fn publish(
        &mut self,
        image: &Pog<C, H, F>,
        table: Option<&HostTable>,
    ) -> Result<u64, PublishError> {
        self.publish_with(image, table, &[])
    }

    /// Like [`Self::publish`], and publishes the caller's own tables at the same time: `extra`
    /// words, which readers access by [`View::extra`](super::View::extra). Words after those given
    /// keep the contents of an earlier publication.
    ///
    /// # Errors
    /// As [`Self::publish`], and [`PublishError::Extra`].
    pub fn publish_with(
        &mut self,
        image: &Pog<C, H, F>,
        table: Option<&HostTable>,
        extra: &[u64],
    ) -> Result<u64, PublishError> {
        self.stage(image, table, extra)?;
        Ok(self.commit())
    }

    /// The first and long part of [`Self::publish_with`]: writes the copy that is not in use. May
    /// be repeated with a changed image (if its deltas were noted) before [`Self::commit`]
    /// publishes the last one.
    ///
    /// For callers that check again for events while the copy was written.
    ///
    /// # Errors
    /// As [`Self::publish_with`].
    pub fn stage(
        &mut self,
        image: &Pog<C, H, F>,
        table: Option<&HostTable>,
        extra: &[u64],
    ) -> Result<(), PublishError> {
        self.refuse(image, table, extra)?;
        if let Some(ready_at) = self.ready_at() {
            std::thread::sleep(ready_at.saturating_duration_since(Instant::now()));
        }
        if (self.lineage, self.noted) != (image.lineage, image.generation) {
            self.stale = [Stale { cells: None }, Stale { cells: None }];
            (self.lineage, self.noted) = (image.lineage, image.generation);
        }
        let epoch = self.copies.header().epoch.begin();
        let shadow = EpochWord::copy(epoch + 1);
        self.write(shadow, image, table);
        for (shared, word) in self.copies.copy(shadow).extra.iter().zip(extra) {
            shared.store(*word, Relaxed);
        }
        Ok(())
    }

    /// Publishes the staged copy atomically, by one store. Returns the new epoch.
    ///
    /// Without a stage since the last commit, readers see the copy before the current one.
    pub fn commit(&mut self) -> u64 {
        let epoch = self.copies.header().epoch.flip();
        self.flipped = Some(Instant::now());
        epoch
    }

    fn refuse(
        &self,
        image: &Pog<C, H, F>,
        table: Option<&HostTable>,
        extra: &[u64],
    ) -> Result<(), PublishError> {
        let sizes = self.copies.sizes();
        let room = sizes.extra_bytes as usize / size_of::<u64>();
        if extra.len() > room {
            return Err(PublishError::Extra { words: extra.len(), room });
        }
        let (given, wanted) = (image.form.tau_bits::<C>(), self.copies.form().tau_bits::<C>());
        if given != wanted {
            return Err(PublishError::Form { given, wanted });
        }
        let cells = image.sizes.a().max(image.sizes.b());
        if cells > sizes.cells_max {
            return Err(PublishError::Cells { cells: cells as usize, room: sizes.cells_max });
        }
        let entries = table.map_or(0, |table| table.entries().len());
        if entries > sizes.entries_max as usize {
            return Err(PublishError::Entries { entries, room: sizes.entries_max });
        }
        Ok(())
    }

    /// Updates the copy that is not in use to the image.
    fn write(&mut self, shadow: usize, image: &Pog<C, H, F>, table: Option<&HostTable>) {
        let copy = self.copies.copy(shadow);
        let CopyHeader { k0, k1, a, b, entries, generation, .. } = copy.header;
        let seed = image.hash.seed();
        k0.store(seed.k0, Relaxed);
        k1.store(seed.k1, Relaxed);
        a.store(image.sizes.a(), Relaxed);
        b.store(image.sizes.b(), Relaxed);
        generation.store(image.generation, Relaxed);
        let table = table.map_or(&[][..], HostTable::entries);
        entries.store(table.len() as u32, Relaxed);
        for (shared, host) in copy.entries.iter().zip(table) {
            shared.store(*host, Relaxed);
        }
        let (of_a, of_b) = image.cells.split_at(image.sizes.a() as usize);
        match self.stale[shadow].cells.replace(Vec::new()) {
            Some(cells) => {
                for index in cells {
                    let cell = image.cells[index as usize];
                    match (index as usize).checked_sub(of_a.len()) {
                        None => cell.store(&copy.a[index as usize]),
                        Some(index) => cell.store(&copy.b[index]),
                    }
                }
            }
            None => {
                of_a.iter().zip(copy.a).for_each(|(cell, shared)| cell.store(shared));
                of_b.iter().zip(copy.b).for_each(|(cell, shared)| cell.store(shared));
            }
        }
    }

    /// Returns the current epoch.
    pub fn epoch(&self) -> u64 {
        self.copies.header().epoch.begin()
    }
}
