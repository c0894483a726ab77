//! Two copies and one epoch word: how a changing POG is read while it changes.
//!
//! The memory holds two copies of everything that a lookup needs: seed, sizes, host table, cells. The low bit of the
//! epoch word says which one counts. A writer fills the other copy, however long that takes, and then adds one to the
//! epoch: in that instant all of the change is seen, and before it none.
//!
//! - A reader takes the epoch, looks up, and looks at the epoch again. Unchanged: nobody has written to its copy.
//!   Changed: it looks up again. It takes no lock and writes nothing, so a BPF program or a process with a read-only
//!   mapping can be one.
//! - A writer never waits for a reader. It leaves the copy that it has just taken out of use alone for a grace
//!   period, so that readers rarely have to look up again; that they are right does not depend on it.
//! - A writer that is preempted, or dies, half-way through a copy has touched only what nobody reads. The next one
//!   ([`Publisher::attach`]) writes that copy whole.
//!
//! One writer at a time is the user's to ensure.
//!
//! # Source
//! equipoise, `design.md` section 5. The epoch check is that of a sequence lock: Boehm, "Can seqlocks get along with
//! programming language memory models?", 2012.

mod epoch;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod publisher;
#[cfg(not(loom))]
mod reader;
#[cfg(not(loom))]
mod region;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use layout::{CopyHeader, Header, MAGIC, SharedSizes};
#[cfg(not(loom))]
pub use publisher::{PublishError, Publisher};
#[cfg(not(loom))]
pub use reader::{OpenError, Reader, View};
#[cfg(not(loom))]
pub use region::{Access, Region};
