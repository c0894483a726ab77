//! The mapped areas that the program and userspace share, with typed access.

mod openings;
mod recent;
mod sketch;
mod touched;

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use equipoise_pog::publish::Region;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use thiserror::Error;

pub(crate) use sketch::Sketch;
pub use touched::Touched;

use crate::abi::{
    Cpu, HOWS, PENDING_WAYS, PORT_WAYS, PendingShare, Port, REASONS, Sender, StateHeader,
    TRANSLATED_WAYS,
};
use crate::limits::Limits;

/// Memory cannot be mapped.
#[derive(Debug, Error)]
#[error("cannot map {bytes} bytes of {what}: lower [flows] max, or raise the memory limit")]
pub struct MapError {
    /// Which area.
    pub what: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Error of the system call.
    #[source]
    pub source: io::Error,
}

/// A shared, writable mapping.
#[derive(Debug)]
pub struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that belongs to no thread; all access is through atomics.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Zeroed memory of this process.
    ///
    /// # Errors
    /// If the system has no such memory.
    pub fn anonymous(len: usize) -> io::Result<Area> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory that is in
        // use.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::SHARED) }?;
        Area::new(start, len)
    }

    /// The first `len` bytes of a file or BPF map.
    ///
    /// # Errors
    /// If it cannot be mapped so.
    pub fn map(file: impl AsFd, len: usize) -> io::Result<Area> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        Area::new(start, len)
    }

    fn new(start: *mut core::ffi::c_void, len: usize) -> io::Result<Area> {
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Area { start, len })
    }

    /// Where it begins: for a program compiled for the host.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping has at least one byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    fn checked(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.len), "the array ends inside the area");
        self.start.as_ptr().wrapping_add(offset)
    }

    /// `count` words at `offset`.
    ///
    /// # Panics
    /// If they do not lie inside the area, or not at a multiple of 8.
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let start = self.checked(offset, count * size_of::<AtomicU64>());
        assert!(start.addr().is_multiple_of(align_of::<AtomicU64>()), "the words are aligned");
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned; atomics may be
        // written by others.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// `count` quarters of words at `offset`.
    ///
    /// # Panics
    /// If they do not lie inside the area, or not at a multiple of 2.
    pub fn quarters(&self, offset: usize, count: usize) -> &[AtomicU16] {
        let start = self.checked(offset, count * size_of::<AtomicU16>());
        assert!(start.addr().is_multiple_of(align_of::<AtomicU16>()), "the words are aligned");
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// `count` half words at `offset`.
    ///
    /// # Panics
    /// If they do not lie inside the area, or not at a multiple of 4.
    pub fn halves(&self, offset: usize, count: usize) -> &[AtomicU32] {
        let start = self.checked(offset, count * size_of::<AtomicU32>());
        assert!(start.addr().is_multiple_of(align_of::<AtomicU32>()), "the words are aligned");
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made for this area, and whatever borrowed from it borrowed the
        // area.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Memory that the program writes, and userspace reads or clears.
#[derive(Clone, Debug)]
pub struct StateMemory {
    area: Arc<Area>,
    limits: Limits,
}

impl StateMemory {
    /// Over an area of `limits.state_bytes`.
    pub fn new(area: Arc<Area>, limits: Limits) -> StateMemory {
        StateMemory { area, limits }
    }

    /// The mapping.
    pub fn area(&self) -> &Arc<Area> {
        &self.area
    }

    /// Flows in pending: the program adds, userspace subtracts.
    pub fn pending_count(&self) -> &AtomicU32 {
        &self.area.halves(0, 2)[0]
    }

    /// Above it new flows are not recorded.
    pub fn pending_mark(&self) -> &AtomicU32 {
        &self.area.halves(0, 2)[1]
    }

    /// Odd; under another one, flows have other touched tags.
    pub fn interval(&self) -> &AtomicU64 {
        &self.area.words(8, 1)[0]
    }

    /// The interval's number before this one.
    pub fn previous_interval(&self) -> &AtomicU64 {
        &self.area.words(offset_of!(StateHeader, previous_interval), 1)[0]
    }

    /// Lines of eight flows with their slots, one after another.
    pub fn pending(&self) -> &[AtomicU64] {
        let words = self.limits.pending_buckets as usize * PENDING_WAYS;
        self.area.words(self.limits.pending_offset as usize, words)
    }

    /// The number of the service of each flow in pending.
    pub(crate) fn pending_services(&self) -> &[AtomicU16] {
        let words = self.limits.pending_buckets as usize * PENDING_WAYS;
        self.area.quarters(self.limits.pending_services_offset as usize, words)
    }

    /// Of a service number: its flows in pending, its share, and the room that it leaves to others.
    pub fn pending_share(&self, service: usize) -> [&AtomicU32; 3] {
        const WORDS: usize = size_of::<PendingShare>() / size_of::<u32>();
        let words = self.limits.services_max as usize * WORDS;
        let shares = self.area.halves(self.limits.pending_shares_offset as usize, words);
        let share = &shares[service * WORDS..];
        [&share[0], &share[1], &share[2]]
    }

    /// Active and inactive connections of a backend index.
    pub fn load(&self, backend: usize) -> [&AtomicU32; 2] {
        let loads = self
            .area
            .halves(self.limits.loads_offset as usize, self.limits.backends_max as usize * 2);
        [&loads[2 * backend], &loads[2 * backend + 1]]
    }

    /// The words of an entry of the ways back to clients.
    pub(crate) fn sender(&self, index: usize) -> &[AtomicU64] {
        const BYTES: usize = size_of::<Sender>();
        self.area.words(self.limits.senders_offset as usize + index * BYTES, BYTES / 8)
    }

    /// The next turn of a service number.
    pub fn cursor(&self, service: usize) -> &AtomicU32 {
        let services = self.limits.services_max as usize;
        &self.area.halves(self.limits.cursors_offset as usize, services)[service]
    }
}

/// The ports of full-nat's flows, which only the program writes.
#[derive(Clone, Debug)]
pub struct PortsMemory {
    area: Arc<Area>,
    limits: Limits,
}

impl PortsMemory {
    /// Over an area of `limits.ports_bytes`.
    pub fn new(area: Arc<Area>, limits: Limits) -> PortsMemory {
        PortsMemory { area, limits }
    }

    /// The mapping.
    pub fn area(&self) -> &Arc<Area> {
        &self.area
    }

    /// Number of ports.
    pub(crate) fn ports_max(&self) -> usize {
        self.limits.ports_max as usize
    }

    /// The words that lead from a flow to its port.
    pub(crate) fn line(&self, digest: u64) -> &[AtomicU64] {
        let line = digest as usize & (self.limits.port_lines as usize - 1);
        self.area.words(line * PORT_WAYS * size_of::<u64>(), PORT_WAYS)
    }

    /// The words of each port: [`Port`](crate::abi::Port).
    pub fn ports(&self) -> impl Iterator<Item = &[AtomicU64]> {
        (0..self.limits.ports_max as usize).map(|index| self.port(index))
    }

    /// The words of the port at an index.
    pub(crate) fn port(&self, index: usize) -> &[AtomicU64] {
        const BYTES: usize = size_of::<Port>();
        let index = index & (self.limits.ports_max as usize - 1);
        self.area.words(self.limits.ports_offset as usize + index * BYTES, BYTES / 8)
    }
}

/// The flows of nat. The program writes them, and the control side those that other balancers
/// report. They exist from the first VIP with nat on.
#[derive(Clone, Debug)]
pub struct TranslatedMemory {
    area: Arc<OnceLock<Area>>,
    limits: Limits,
}

impl TranslatedMemory {
    fn absent(limits: Limits) -> TranslatedMemory {
        TranslatedMemory { area: Arc::default(), limits }
    }

    /// Begins to exist, over an area of [`Limits::translated_bytes`]. Later calls do nothing.
    ///
    /// # Panics
    /// If the area is too small.
    pub(crate) fn begin(&self, area: Area) {
        let bytes = self.limits.translated_bytes() as usize;
        assert!(area.len() >= bytes, "the flows of nat have the layout's size");
        let _ = self.area.set(area);
    }

    /// The mapping, if it exists.
    pub fn area(&self) -> Option<&Area> {
        self.area.get()
    }

    /// Lines of eight words, each a flow of nat, one after another. Empty: they do not exist.
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.limits.translated_lines as usize * TRANSLATED_WAYS;
        self.area().map_or(&[], |area| area.words(0, words))
    }
}

/// A CPU's counters, recent events and log.
#[derive(Clone, Debug)]
pub struct CpuMemory {
    area: Arc<Area>,
    start: usize,
    limits: Limits,
}

impl CpuMemory {
    /// Of CPU `cpu`, in an area of `limits.cpus_max` times `limits.cpu_bytes`.
    pub fn new(area: Arc<Area>, cpu: usize, limits: Limits) -> CpuMemory {
        CpuMemory { area, start: cpu * limits.cpu_bytes as usize, limits }
    }

    fn words(&self, offset: u32, row: usize, of: usize) -> &[AtomicU64] {
        self.area.words(self.start + offset as usize + row * of * 8, of)
    }

    /// Packets and bytes forwarded, of a service number.
    pub fn service(&self, number: usize) -> [u64; 2] {
        let words = self.service_counter(number);
        [words[0].load(Relaxed), words[1].load(Relaxed)]
    }

    /// Packets and bytes forwarded, of a backend number.
    pub fn backend(&self, number: usize) -> [u64; 2] {
        let words = self.backend_counter(number);
        [words[0].load(Relaxed), words[1].load(Relaxed)]
    }

    /// Packets dropped after a backend number was chosen.
    pub fn backend_drops(&self, number: usize) -> u64 {
        self.backend_drop_counter(number).load(Relaxed)
    }

    pub(crate) fn backend_drop_counter(&self, number: usize) -> &AtomicU64 {
        &self.words(self.limits.cpu_backend_drops_offset, number, 1)[0]
    }

    pub(crate) fn service_counter(&self, number: usize) -> &[AtomicU64] {
        self.words(self.limits.cpu_services_offset, number, 2)
    }

    pub(crate) fn backend_counter(&self, number: usize) -> &[AtomicU64] {
        self.words(self.limits.cpu_backends_offset, number, 2)
    }

    /// The next times of the rate limits: of echoes, and of packet-too-big answers.
    pub(crate) fn tokens_at_ns(&self) -> &[AtomicU64] {
        self.words(offset_of!(Cpu, echo_tokens_at_ns) as u32, 0, 2)
    }

    /// Tells the program whether there is a capture.
    pub(crate) fn set_capturing(&self, is_capturing: bool) {
        let at = self.start + offset_of!(Cpu, capturing);
        self.area.halves(at, 1)[0].store(u32::from(is_capturing), Relaxed);
    }

    /// Packets by [`How`](crate::abi::How), of a service number.
    pub fn hows(&self, number: usize) -> &[AtomicU64] {
        self.words(self.limits.cpu_hows_offset, number, HOWS)
    }

    /// Packets by [`Reason`](crate::Reason), of a service number; `None`: of no service.
    pub fn reasons(&self, number: Option<usize>) -> &[AtomicU64] {
        let row = number.unwrap_or(self.limits.services_max as usize);
        self.words(self.limits.cpu_reasons_offset, row, REASONS)
    }

    /// Begins a service number's counters at 0. Only for numbers that no published table has.
    pub fn clear_service(&self, number: usize) {
        let clear = |words: &[AtomicU64]| words.iter().for_each(|word| word.store(0, Relaxed));
        clear(self.words(self.limits.cpu_services_offset, number, 2));
        clear(self.hows(number));
        clear(self.reasons(Some(number)));
    }

    /// Begins a backend number's counters at 0. Only for numbers that no published table has.
    pub fn clear_backend(&self, number: usize) {
        let words = self.words(self.limits.cpu_backends_offset, number, 2);
        words.iter().for_each(|word| word.store(0, Relaxed));
        self.backend_drop_counter(number).store(0, Relaxed);
    }
}

/// All that is shared with one loaded program.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The published tables.
    pub tables: Arc<Region>,
    /// Memory that the program writes and userspace clears.
    pub state: StateMemory,
    /// Counters and logs.
    pub cpus: Vec<CpuMemory>,
    /// Ports of full-nat's flows.
    pub ports: PortsMemory,
    /// Flows of nat.
    pub translated: TranslatedMemory,
    cpus_area: Arc<Area>,
}

impl Memory {
    /// Memory of this process, for a program compiled for the host, the twin and tests. With memory
    /// for flows of nat.
    ///
    /// # Errors
    /// [`MapError`]
    pub fn anonymous(limits: &Limits) -> Result<Memory, MapError> {
        let failed = |what, bytes: usize| move |source| MapError { what, bytes, source };
        let tables_bytes = limits.tables_bytes as usize;
        let state_bytes = limits.state_bytes as usize;
        let cpus_bytes = limits.cpu_bytes as usize * limits.cpus_max as usize;
        let ports_bytes = limits.ports_bytes as usize;
        let translated_bytes = limits.translated_bytes() as usize;
        let memory = Memory::over(
            Region::anonymous(tables_bytes).map_err(failed("tables", tables_bytes))?,
            Area::anonymous(state_bytes).map_err(failed("state", state_bytes))?,
            Area::anonymous(cpus_bytes).map_err(failed("cpus", cpus_bytes))?,
            Area::anonymous(ports_bytes).map_err(failed("ports", ports_bytes))?,
            limits,
        );
        let translated = Area::anonymous(translated_bytes);
        memory.translated.begin(translated.map_err(failed("translated", translated_bytes))?);
        Ok(memory)
    }

    /// Over mappings of the sizes that `limits` says. Without flows of nat.
    ///
    /// # Panics
    /// If one is too small.
    pub fn over(tables: Region, state: Area, cpus: Area, ports: Area, limits: &Limits) -> Memory {
        assert!(tables.len() >= limits.tables_bytes as usize, "the tables have the layout's size");
        assert!(state.len() >= limits.state_bytes as usize, "the state has the layout's size");
        assert!(ports.len() >= limits.ports_bytes as usize, "the ports have the layout's size");
        let cpus_area = Arc::new(cpus);
        let cpus = (0..limits.cpus_max as usize)
            .map(|cpu| CpuMemory::new(cpus_area.clone(), cpu, *limits))
            .collect();
        let state = StateMemory::new(Arc::new(state), *limits);
        let ports = PortsMemory::new(Arc::new(ports), *limits);
        let translated = TranslatedMemory::absent(*limits);
        Memory { tables: Arc::new(tables), state, cpus, ports, translated, cpus_area }
    }

    /// The mapping of all CPUs.
    pub fn cpus_area(&self) -> &Arc<Area> {
        &self.cpus_area
    }
}
