//! Resource utilisation of this machine, and the recent history of every node.
//!
//! [`Monitor`] reads the kernel's files each period: CPU, memory, interfaces and pressure, of the
//! machine and of the control group (version 1 or 2) of this process. The result, [`Utilisation`],
//! is in per cent **of the usable resources**: a container with half a CPU is at 100 % when it uses
//! half a CPU, however busy the machine is. The machine's utilisation is a second figure. A value
//! that the kernel does not report is `None`, never a guess; in particular, a link of unknown speed
//! gives no network signal.
//!
//! [`Repository`] is L3B's resource utilisation repository: the recent history of each node in
//! fixed memory, fine for the last minutes and coarser for the last hours.
//!
//! I/O is at the edge (`source`, `group`, `links`). Parsing ([`parse`]), rates ([`between`]) and
//! the repository are functions of their arguments. Nothing here returns an I/O error: a missing or
//! malformed file is a missing signal.

mod group;
mod links;
mod meter;
mod monitor;
pub mod parse;
mod repository;
mod source;

pub use meter::{GroupReading, InterfaceRate, InterfaceReading, Reading, Utilisation, between};
pub use monitor::{Monitor, MonitorOptions, usable_memory_bytes};
pub use repository::{
    Point, QueryError, Refused, Repository, RepositoryOptions, Sample, Spread, Tier,
};
