//! Publishes a changing POG to concurrent readers, with two copies and one epoch word.
//!
//! The memory has two copies of everything that a lookup needs: seed, sizes, host table, cells. The
//! low bit of the epoch word selects the current copy. A writer fills the other copy, however long
//! that takes, and then increments the epoch. This makes the whole change visible at once.
//!
//! - A reader reads the epoch, looks up, and reads the epoch again. If it is unchanged, no write to
//!   the copy has happened. Otherwise it looks up again. It takes no lock and writes nothing, so a
//!   BPF program or a process with a read-only mapping can be a reader.
//! - A writer never waits for a reader. It does not overwrite a replaced copy during a grace
//!   period, so that readers rarely have to repeat a lookup. Their correctness does not depend on
//!   it.
//! - A writer that is preempted or dies in the middle of a copy has only modified the copy that is
//!   not in use. The next writer ([`Publisher::attach`]) writes that copy completely.
//!
//! The caller must ensure that there is only one writer at a time.
//!
//! # Source
//! equipoise, `design.md` section 5. The epoch check is that of a sequence lock: Boehm, "Can
//! seqlocks get along with programming language memory models?", 2012.

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
