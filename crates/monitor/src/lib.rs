//! What this machine is doing, and what every node was doing lately.
//!
//! [`Monitor`] reads the kernel's files each period: processors, memory, interfaces, pressure, of the machine and of
//! the control group (version 1 and 2) that this process is in. Its answer, [`Utilisation`], is in per cent **of
//! what may be used here**: a container with half a processor is full at half a processor, and not before, however
//! busy its machine is; the machine's own use is a second figure. What the kernel does not
//! say is `None`, never a guess; above all a link without a known speed gives no network signal.
//!
//! [`Repository`] is L3B's resource utilisation repository: the recent history of each node in fixed memory, fine for
//! the last minutes and coarser for the last hours.
//!
//! Reading is at the edge (`source`, `group`, `links`); parsing ([`parse`]), rates ([`between`]) and the repository
//! are functions of their arguments. Nothing here fails: a file that is missing or odd is a missing signal.

mod group;
mod links;
mod meter;
mod monitor;
pub mod parse;
mod repository;
mod source;

pub use meter::{GroupReading, InterfaceRate, InterfaceReading, Reading, Utilisation, between};
pub use monitor::{Monitor, MonitorOptions};
pub use repository::{
    Point, QueryError, Refused, Repository, RepositoryOptions, Sample, Spread, Tier,
};
