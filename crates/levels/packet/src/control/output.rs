//! Publishes one directory and one image to every memory.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_pog::publish::PublishError;

use super::error::ControlError;
use super::pins::PinSet;
use crate::abi::Directory;
use crate::directory::{self, NoSeed, Published, ServiceRecord, write_ring};
use crate::limits::{Capacity, Limits};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::snapshot::Station;
use crate::tables::{TablesPublisher, TablesReader, pin_form};

/// The program's tables in every memory, and their contents.
#[derive(Debug)]
pub(super) struct Output {
    limits: Limits,
    publishers: Vec<Target>,
    /// The directory and the rings to publish next.
    words: Vec<u64>,
    /// The ring at each index; `None`: free.
    rings: Vec<Option<Arc<Ring>>>,
    /// Number of changes of rings.
    version: u64,
    /// The published directory without rings, and the version of the rings.
    published: (Vec<u64>, u64),
}

#[derive(Debug)]
struct Target {
    publisher: TablesPublisher,
    /// Version of the rings in each copy.
    versions: [u64; 2],
}

impl Output {
    /// Takes over memories that are set up, and sets up the others. Also returns the published
    /// contents of the first.
    pub(super) fn open(
        memories: &[Memory],
        capacity: &Capacity,
        limits: Limits,
        pins: &PinSet,
    ) -> Result<(Output, Option<Published>), ControlError> {
        let published = match memories.first() {
            None => return Err(ControlError::NoMemory),
            Some(first) if first.tables.is_set_up() => Some(published(first, &limits)?),
            Some(_) => None,
        };
        // The control side observes the grace period itself, by its own clock.
        let grace = Duration::ZERO;
        let target = |memory: &Memory| -> Result<Target, ControlError> {
            let tables = memory.tables.clone();
            let publisher = if tables.is_set_up() {
                TablesPublisher::attach(tables, grace, pin_form()).map_err(ControlError::Adopt)?
            } else {
                let sizes = limits.shared_sizes(capacity);
                TablesPublisher::create(tables, sizes, grace, pins.controller.pog(), None)
                    .map_err(ControlError::Publish)?
            };
            Ok(Target { publisher, versions: [u64::MAX; 2] })
        };
        let publishers = memories.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        let mut output = Output {
            limits,
            publishers,
            words: vec![0; limits.directory_bytes() / size_of::<u64>()],
            rings: vec![None; limits.rings_max as usize],
            version: 0,
            published: (Vec::new(), u64::MAX),
        };
        // If some memories have no publication, or they differ, everything must be published.
        if let Some((words, _)) = &published
            && memories.iter().all(|memory| words_of(memory).is_some_and(|it| it == *words))
        {
            output.published = (words[..output.rings_at()].to_vec(), 0);
        }
        Ok((output, published.map(|(_, published)| published)))
    }

    /// Places exactly these rings in the directory; existing rings keep their index. Equal rings
    /// become one, so that VIPs with equal pools need the CPU's cache for only one. `None` if there
    /// are too many.
    pub(super) fn place(&mut self, rings: &mut [&mut Arc<Ring>]) -> Option<()> {
        for held in &mut self.rings {
            if held.as_ref().is_some_and(|held| !rings.iter().any(|it| Arc::ptr_eq(it, held))) {
                *held = None;
            }
        }
        for ring in rings {
            if self.index(ring).is_some() {
                continue;
            }
            let mut held = self.rings.iter().flatten();
            if let Some(equal) = held.find(|held| *held == *ring) {
                **ring = Arc::clone(equal);
            } else {
                let free = self.rings.iter().position(Option::is_none)?;
                self.rings[free] = Some(ring.clone());
                write_ring(&self.limits, free as u32, ring.entries(), &mut self.words);
                self.version += 1;
            }
        }
        Some(())
    }

    /// Writes everything except the rings, which are already placed. Returns whether anything
    /// differs from the published state.
    pub(super) fn write(
        &mut self,
        head: Directory,
        records: &[ServiceRecord],
        leaving: &BTreeSet<IpAddr>,
        stations: &BTreeSet<Station>,
    ) -> Result<bool, NoSeed> {
        directory::write(&self.limits, head, records, leaving, stations, &mut self.words)?;
        let (words, version) = &self.published;
        Ok(*version != self.version || self.words[..self.rings_at()] != words[..])
    }

    /// Returns the number of words before the rings.
    fn rings_at(&self) -> usize {
        ((self.limits.rings_offset - self.limits.directory_offset) / 8) as usize
    }

    /// Adopts a published ring.
    pub(super) fn adopt_ring(&mut self, index: u32, ring: &Arc<Ring>) {
        if let Some(place) = self.rings.get_mut(index as usize)
            && !ring.entries().is_empty()
        {
            *place = Some(ring.clone());
            write_ring(&self.limits, index, ring.entries(), &mut self.words);
        }
    }

    /// Returns the index of a ring.
    pub(super) fn index(&self, ring: &Arc<Ring>) -> Option<u32> {
        let is_it =
            |held: &Option<Arc<Ring>>| held.as_ref().is_some_and(|it| Arc::ptr_eq(it, ring));
        self.rings.iter().position(is_it).map(|index| index as u32)
    }

    /// Writes the copies that no program reads.
    pub(super) fn stage(&mut self, pins: &mut PinSet) -> Result<(), PublishError> {
        let rings_at = self.rings_at();
        for target in &mut self.publishers {
            for delta in &pins.deltas {
                target.publisher.note(delta);
            }
            let shadow = ((target.publisher.epoch() + 1) & 1) as usize;
            // The rings are most of the directory, and seldom change.
            let is_current = target.versions[shadow] == self.version;
            let words = if is_current { &self.words[..rings_at] } else { &self.words[..] };
            target.publisher.stage(pins.controller.pog(), None, words)?;
            target.versions[shadow] = self.version;
        }
        pins.deltas.clear();
        Ok(())
    }

    /// Makes the staged copies current. Returns the first memory's epoch.
    pub(super) fn commit(&mut self) -> Option<u64> {
        let rings_at = self.rings_at();
        self.published = (self.words[..rings_at].to_vec(), self.version);
        let epochs = self.publishers.iter_mut().map(|target| target.publisher.commit());
        epochs.collect::<Vec<_>>().first().copied()
    }
}

/// Returns the published directory; `None` if there is none or it is unreadable.
fn words_of(memory: &Memory) -> Option<Vec<u64>> {
    let reader = TablesReader::open(memory.tables.clone(), pin_form()).ok()?;
    Some(reader.read(|view| view.extra().iter().map(|word| word.load(Relaxed)).collect()))
}

fn published(memory: &Memory, limits: &Limits) -> Result<(Vec<u64>, Published), ControlError> {
    let words = words_of(memory).ok_or(ControlError::Foreign { what: "another layout" })?;
    if words.len() * size_of::<u64>() != limits.directory_bytes() {
        return Err(ControlError::Foreign { what: "another capacity" });
    }
    let published =
        directory::read(limits, &words).ok_or(ControlError::Foreign { what: "damaged" })?;
    Ok((words, published))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> Output {
        let capacity = Capacity { rings: 4, ring_entries: 7, ..Capacity::default() };
        let limits = Limits::new(&capacity);
        let memory = Memory::anonymous(&limits).unwrap();
        let pins = PinSet::empty(capacity.pins as usize, Some(7)).unwrap();
        Output::open(&[memory], &capacity, limits, &pins).unwrap().0
    }

    fn ring(slots: [u16; 7]) -> Arc<Ring> {
        Arc::new(Ring::of(slots.to_vec()))
    }

    fn place<const N: usize>(output: &mut Output, rings: &mut [Arc<Ring>; N]) -> [Option<u32>; N] {
        output.place(&mut rings.iter_mut().collect::<Vec<_>>()).unwrap();
        rings.each_ref().map(|ring| output.index(ring))
    }

    #[test]
    fn equal_rings_share_a_place_until_one_changes() {
        let mut output = output();
        let (all, other) = ([0, 1, 2, 0, 1, 2, 0], [0, 1, 0, 0, 1, 1, 0]);
        let mut rings = [ring(all), ring(all), ring(all)];
        assert_eq!(place(&mut output, &mut rings), [Some(0); 3]);
        let written = output.version;
        assert_eq!(place(&mut output, &mut rings), [Some(0); 3]);
        assert_eq!(output.version, written, "nothing is written again");

        rings[1] = ring(other);
        assert_eq!(place(&mut output, &mut rings), [Some(0), Some(1), Some(0)]);
        // The others follow, one after another; the last one takes the first ring along.
        rings[0] = ring(other);
        assert_eq!(place(&mut output, &mut rings), [Some(1), Some(1), Some(0)]);
        rings[2] = ring(other);
        assert_eq!(place(&mut output, &mut rings), [Some(1); 3]);
        assert_eq!(output.rings.iter().flatten().count(), 1);
    }

    #[test]
    fn a_place_that_two_vips_published_is_taken_over_once() {
        let mut output = output();
        let mut rings = [[0, 1, 0, 1, 0, 1, 0]; 2].map(ring);
        rings.iter().for_each(|ring| output.adopt_ring(2, ring));
        let adopted = output.version;
        assert_eq!(place(&mut output, &mut rings), [Some(2); 2]);
        assert_eq!(output.version, adopted);
    }
}
