//! The packet level: an XDP load balancer that never moves an established flow.
//!
//! In: VIPs with pools of backends (snapshots with a generation), packets on an interface. Out:
//! packets on their way to backends, counters, samples. Fails by dropping with a counted
//! [`Reason`], or by leaving the running tables in place.

pub mod abi;
mod access;
mod address_hash;
mod backend_id;
pub mod capture;
mod clock;
pub mod config;
pub mod control;
pub mod decap;
mod digest;
mod directory;
pub mod engine;
pub mod fleet;
mod ledger;
mod limits;
mod memory;
mod own_address;
pub mod packet;
pub mod privileges;
mod program;
mod quic;
mod reason;
mod registry;
mod ring;
mod scheduler;
mod slots;
mod snapshot;
mod tables;
pub mod twin;

pub use access::Access;
pub use address_hash::{address_hash, station_hash};
pub use control::{Control, Settings};
pub use digest::{Digest, DigestHash, KeyBytes};
pub use ledger::{Ledger, LedgerError, LedgerPin, Seats};
pub use limits::{Capacity, FlowTags, Limits};
pub use memory::{
    Area, CpuMemory, MapError, Memory, PortsMemory, StateMemory, Touched, TranslatedMemory,
};
pub use program::{
    Decapsulated, Decapsulator, Entry, LoadError, MAPS, OBJECT, Program, Run, RunError,
    TRANSLATED_FLOWS, TranslatedFlows,
};
pub use quic::{NotHex, Quic, QuicConfig, QuicKey, ServerId};
pub use reason::Reason;
pub use registry::{Evidence, Flow, FlowState, Registry, RegistryError};
pub use ring::SOURCE_BUCKETS;
pub use scheduler::FlowScheduler;
pub use snapshot::{
    BackendId, BackendSpec, NextHop, OnDown, OwnTimeouts, Ports, Protocol, Snapshot, Sources,
    Standing, Station, VipId, VipSpec,
};
pub use tables::{
    PinController, Pins, PogCell, TablesPublisher, TablesReader, TablesView, pin_form,
};
