//! Persistent state of the controller.
//!
//! | comes in | goes out |
//! |---|---|
//! | small transactions: conditions, keys and values | entries, each at a revision |
//! | a folder and a revision | every change after it, in order, or a resync |
//! | a duration | a lease: entries under it are deleted when it is not kept alive |
//!
//! [`Embedded`] keeps the state in a file on one machine, [`Etcd`] in an etcd cluster. Consensus is
//! always etcd's. Both support [`Election`] (one leader at a time, with a term that fences off
//! earlier leaders) and [`Membership`] (the list of live members). [`OpenStore`] opens the store
//! that a configuration names.
//!
//! Operations fail with [`StoreError`], which tells whether a write may have been done. Losing the
//! store does not interrupt service: levels continue with their last instructions.

mod election;
mod embedded;
mod entry;
mod error;
mod etcd;
mod key;
mod lease;
mod membership;
mod open;
pub mod place;
mod sealed;
mod store;
mod transaction;
mod watch;

pub use election::{Election, Leader, Leadership, Term};
pub use embedded::{Copied, Embedded, EmbeddedOptions, OpenError, Restored};
pub use entry::{Change, Entry, Listing, Revision, Update};
pub use error::{Cause, Outcome, StoreError};
pub use etcd::{ConnectError, Etcd, EtcdOptions, EtcdTls, EtcdUser};
pub use key::{Key, KeyError, Prefix};
pub use lease::{HeldLease, Lease, LeaseId};
pub use membership::{JoinError, Member, Membership};
pub use open::{CannotOpen, EtcdPlace, OpenStore};
pub use sealed::{CannotSeal, SealedStore, SharedError};
pub use store::Store;
pub use transaction::{Committed, Expect, Refusal, Transaction, TransactionError, Write};
pub use watch::{Watch, WatchEvent};
