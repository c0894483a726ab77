//! The program for backends without a tunnel device in the kernel.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use super::log::Log;
use super::{LoadError, Run, RunError};
use crate::abi::{Counter, DecapsulationConstants};

/// As an ELF object.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/decap.bpf.o"));

const PROGRAM: &str = "decapsulate";
const COUNTERS: &str = "decapsulated";

/// Counts of a [`Decapsulator`] since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decapsulated {
    /// Taken out of their tunnel.
    pub taken: Counter,
    /// Packets of a tunnel from a source that is not a balancer: left to the kernel.
    pub foreign: Counter,
    /// Dropped packets: the inner packet does not match the outer protocol, or cannot carry the
    /// tunnel's congestion mark.
    pub invalid: Counter,
    /// In frames to another station: left to the kernel.
    pub foreign_mac: Counter,
    /// Passed on to another backend, because this host does not know the flow.
    pub passed_on: Counter,
    /// Of `taken`, those that another backend passed on.
    pub second: Counter,
    /// Not passed on, because the other backend is not configured.
    pub refused: Counter,
    /// Dropped: the other backend could not be reached (yet).
    pub unreachable: Counter,
}

/// Takes the outer headers of tunnel and GUE off, and leaves the packet within to the kernel.
#[derive(Debug)]
pub struct Decapsulator {
    object: Object,
}

impl Decapsulator {
    /// Loads the program. With all constants zero it takes tunnels from anywhere, and no GUE.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load(constants: &DecapsulationConstants) -> Result<Decapsulator, LoadError> {
        let log = Log::begin();
        let refused = |source| LoadError::Refused { log: log.end(), source };
        let mut object = ObjectBuilder::default().open_memory(OBJECT).map_err(refused)?;
        for mut map in object.maps_mut() {
            if map.name().as_encoded_bytes().ends_with(b".rodata") {
                let bytes = map.initial_value_mut().unwrap_or_default();
                bytes[..size_of::<DecapsulationConstants>()].copy_from_slice(constants.as_bytes());
            }
        }
        let object = object.load().map_err(|source| LoadError::of(source, &log, 0))?;
        Ok(Decapsulator { object })
    }

    /// The loaded object: its program to attach and pin.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The same, for what changes it.
    pub fn object_mut(&mut self) -> &mut Object {
        &mut self.object
    }

    /// The program's file descriptor.
    ///
    /// # Panics
    /// Never: the object has the program.
    pub fn fd(&self) -> BorrowedFd<'_> {
        let found = self.object.progs().find(|program| program.name() == PROGRAM);
        let fd = found.expect("the object has the program").as_fd().as_raw_fd();
        // SAFETY: the object owns it and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The sums over all CPUs.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> Result<Decapsulated, libbpf_rs::Error> {
        let Some(map) = self.object.maps().find(|map| map.name() == COUNTERS) else {
            return Ok(Decapsulated::default());
        };
        let sum = |which: u32| -> Result<Counter, libbpf_rs::Error> {
            let cpus = map.lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
            let words = |value: &[u8], at: usize| {
                value[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
            };
            Ok(cpus.iter().fold(Counter::default(), |sum, value| Counter {
                packets: sum.packets + words(value, 0),
                bytes: sum.bytes + words(value, 8),
            }))
        };
        Ok(Decapsulated {
            taken: sum(0)?,
            foreign: sum(1)?,
            invalid: sum(2)?,
            foreign_mac: sum(3)?,
            passed_on: sum(4)?,
            second: sum(5)?,
            refused: sum(6)?,
            unreachable: sum(7)?,
        })
    }

    /// Runs the program `repeat` times on a packet, each time on what the last one left.
    ///
    /// # Errors
    /// [`RunError`]
    ///
    /// # Panics
    /// Never: the object has the program.
    pub fn run(&mut self, packet: &[u8], repeat: u32) -> Result<Run, RunError> {
        let found = self.object.progs_mut().find(|program| program.name() == PROGRAM);
        super::run(&found.expect("the object has the program"), packet, repeat)
    }
}
