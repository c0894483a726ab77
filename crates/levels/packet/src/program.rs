//! The programs in the kernel: loads them, maps their memory, runs them on a packet.

mod decapsulator;
mod log;
mod translated;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_pog::publish::{Access, Region};
use libbpf_rs::{
    ErrorKind, Map, MapCore, Object, ObjectBuilder, OpenObject, Program as BpfProgram,
    ProgramInput, ProgramMut,
};
use thiserror::Error;

use self::log::Log;
use crate::limits::Limits;
use crate::memory::{Area, MapError, Memory};

pub use self::decapsulator::{Decapsulated, Decapsulator};
pub use self::translated::{TRANSLATED_FLOWS, TranslatedFlows};

/// The compiled programs, as an ELF object.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer.bpf.o"));

/// The maps that userspace shares with the program, as they are named in it and where they are
/// pinned.
pub const MAPS: [&str; 6] = ["tables", "state", "cpus", "fragments", "ports", translated::HOLDER];

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// On every interface that clients' packets, and perhaps replies, come by.
    Balance,
    /// On interfaces that only replies of `nat` backends come by.
    Reverse,
}

impl Entry {
    /// All of them.
    pub const ALL: &[Entry] = &[Entry::Balance, Entry::Reverse];

    /// As the object names it.
    pub fn name(self) -> &'static str {
        match self {
            Entry::Balance => "balance",
            Entry::Reverse => "reverse",
        }
    }
}

/// The program cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The process may not.
    #[error(
        "loading the packet program is not permitted: run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN \
         and CAP_PERFMON"
    )]
    Privilege(#[source] libbpf_rs::Error),
    /// The kernel has no room.
    #[error(
        "the kernel has no memory for the packet program's maps ({bytes} bytes): lower [flows] max, or raise the \
         memory limit"
    )]
    Room {
        /// Size of all maps, bytes.
        bytes: usize,
        /// Error of the system call.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The verifier refuses it: a kernel older than 6.1, or a defect of the program.
    #[error(
        "the kernel refuses the packet program (Linux 6.1 or newer is needed; on one of those, report this):\n{log}"
    )]
    Refused {
        /// End of the log of libbpf and the verifier.
        log: String,
        /// Error of the system call.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A pinned map cannot be taken over.
    #[error(
        "cannot take over the pinned map {path}: another version or other limits made it; stop that process without \
         --keep, or remove the pins"
    )]
    Pinned {
        /// Where it is pinned.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A map cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl LoadError {
    fn of(source: libbpf_rs::Error, log: &Log, bytes: usize) -> LoadError {
        match source.kind() {
            ErrorKind::PermissionDenied if !log.verified() => LoadError::Privilege(source),
            ErrorKind::OutOfMemory => LoadError::Room { bytes, source },
            _ => LoadError::Refused { log: log.end(), source },
        }
    }
}

/// A run on one packet failed.
#[derive(Debug, Error)]
#[error(
    "the kernel did not run the program on a packet of {bytes} bytes (it takes 14 to a page less its headroom)"
)]
pub struct RunError {
    /// The packet's length.
    pub bytes: usize,
    /// Error of the system call.
    #[source]
    pub source: libbpf_rs::Error,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// `XDP_*`
    pub verdict: u32,
    /// The packet after the last repetition.
    pub packet: Vec<u8>,
    /// The mean of all repetitions.
    pub duration: Duration,
}

/// A loaded program and its memory. Dropped: detached from nothing, but gone unless it or its links
/// are pinned.
#[derive(Debug)]
pub struct Program {
    object: Object,
    limits: Limits,
    memory: Memory,
    translated: Option<TranslatedFlows>,
}

impl Program {
    /// Loads the programs with maps of their own, all zero: packets pass until tables are
    /// published. Without memory for flows of nat: see [`Program::translate`].
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load(limits: &Limits) -> Result<Program, LoadError> {
        Program::load_object(OBJECT, limits, None)
    }

    /// Loads another build of [`OBJECT`], to measure what a part of the programs costs.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load_build(object: &[u8], limits: &Limits) -> Result<Program, LoadError> {
        Program::load_object(object, limits, None)
    }

    /// Loads the programs over the maps that another process pinned in `folder` under the names of
    /// [`MAPS`].
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load_over(limits: &Limits, folder: &Path) -> Result<Program, LoadError> {
        Program::load_object(OBJECT, limits, Some(folder))
    }

    fn load_object(
        object: &[u8],
        limits: &Limits,
        pins: Option<&Path>,
    ) -> Result<Program, LoadError> {
        let log = Log::begin();
        let refused = |source| LoadError::Refused { log: log.end(), source };
        let mut object = ObjectBuilder::default().open_memory(object).map_err(refused)?;
        prepare(&mut object, limits).map_err(refused)?;
        let mut example = None;
        for mut map in object.maps_mut() {
            if !MAPS.iter().any(|name| map.name() == *name) {
                continue;
            }
            if let Some(folder) = pins {
                let path = folder.join(map.name());
                map.reuse_pinned_map(&path).map_err(|source| LoadError::Pinned { path, source })?;
            } else if map.name() == translated::HOLDER {
                example = Some(TranslatedFlows::shape(&mut map, limits)?);
            }
        }
        let object =
            object.load().map_err(|source| LoadError::of(source, &log, map_bytes(limits)))?;
        drop(example);
        let memory = map_memory(&object, limits)?;
        let mut program = Program { object, limits: *limits, memory, translated: None };
        if let Some(flows) = pins.map(TranslatedFlows::pinned).transpose()?.flatten() {
            program.translate(flows)?;
        }
        Ok(program)
    }

    /// The sizes it was loaded with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of the maps, except fragments and captures.
    pub fn map_bytes(&self) -> usize {
        let translated = self.memory.translated.area().map_or(0, Area::len);
        map_bytes(&self.limits) + translated
    }

    /// Returns the memory that it shares with userspace.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The loaded object: its programs to attach and pin, its maps to pin.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The same, for what changes it.
    pub fn object_mut(&mut self) -> &mut Object {
        &mut self.object
    }

    /// A program.
    pub fn entry(&self, entry: Entry) -> BpfProgram<'_> {
        let found = self.object.progs().find(|program| program.name() == entry.name());
        found.unwrap_or_else(|| unreachable!("every entry is in the object; a test says so"))
    }

    /// The file descriptor of a program.
    pub fn entry_fd(&self, entry: Entry) -> BorrowedFd<'_> {
        let program = self.entry(entry);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&program.as_fd());
        // SAFETY: the object owns it and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// A map by its name in [`MAPS`].
    pub fn map(&self, name: &str) -> Option<Map<'_>> {
        self.object.maps().find(|map| map.name() == name)
    }

    /// Runs `balance` `repeat` times on a packet that comes by the loopback interface (ifindex 1),
    /// each time on what the last one left.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn run(&mut self, packet: &[u8], repeat: u32) -> Result<Run, RunError> {
        self.run_entry(Entry::Balance, packet, repeat)
    }

    /// The same of any program.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn run_entry(&mut self, entry: Entry, packet: &[u8], repeat: u32) -> Result<Run, RunError> {
        let found = self.object.progs_mut().find(|program| program.name() == entry.name());
        let program = found.unwrap_or_else(|| unreachable!("as in `entry`"));
        run(&program, packet, repeat)
    }
}

/// Maximum growth of a packet, bytes.
const GROWTH_BYTES: usize = 256;

pub(crate) fn run(program: &ProgramMut<'_>, packet: &[u8], repeat: u32) -> Result<Run, RunError> {
    let mut data_out = vec![0; packet.len() + GROWTH_BYTES];
    let input = ProgramInput {
        data_in: Some(packet),
        data_out: Some(&mut data_out),
        repeat,
        ..ProgramInput::default()
    };
    let output =
        program.test_run(input).map_err(|source| RunError { bytes: packet.len(), source })?;
    let packet = output.data.map(|data| data.to_vec()).unwrap_or_default();
    Ok(Run { verdict: output.return_value, packet, duration: output.duration })
}

fn prepare(object: &mut OpenObject, limits: &Limits) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        match map.name().to_str() {
            Some("tables") => map.set_value_size(limits.tables_bytes)?,
            Some("state") => map.set_value_size(limits.state_bytes)?,
            Some("ports") => map.set_value_size(limits.ports_bytes)?,
            Some("cpus") => {
                map.set_value_size(limits.cpu_bytes)?;
                map.set_max_entries(limits.cpus_max)?;
            }
            Some(name) if name.ends_with(".rodata") => {
                let constants = map.initial_value_mut().unwrap_or_default();
                // The only constant of the program; `the_limits_are_all_of_the_constants` sees to
                // it.
                constants[..size_of::<Limits>()].copy_from_slice(limits.as_bytes());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Bytes of the maps that are always there, except fragments.
fn map_bytes(limits: &Limits) -> usize {
    limits.tables_bytes as usize
        + limits.state_bytes as usize
        + limits.ports_bytes as usize
        + limits.cpu_bytes as usize * limits.cpus_max as usize
}

fn map_memory(object: &Object, limits: &Limits) -> Result<Memory, MapError> {
    let named = |name: &'static str| object.maps().find(|map| map.name() == name);
    let area = |what: &'static str, bytes: usize| {
        let map = named(what).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        map.and_then(|map| Area::map(map.as_fd(), bytes)).map_err(|source| MapError {
            what,
            bytes,
            source,
        })
    };
    let bytes = limits.tables_bytes as usize;
    let tables = named("tables").ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
    let tables = tables
        .and_then(|map| Region::map_len(map.as_fd(), bytes, Access::Write))
        .map_err(|source| MapError { what: "tables", bytes, source })?;
    let state = area("state", limits.state_bytes as usize)?;
    let cpus = area("cpus", limits.cpu_bytes as usize * limits.cpus_max as usize)?;
    let ports = area("ports", limits.ports_bytes as usize)?;
    Ok(Memory::over(tables, state, cpus, ports, limits))
}
