//! Where the controller keeps what must outlive it.
//!
//! | comes in | goes out |
//! |---|---|
//! | keys and values, written in small transactions with conditions | what was written, at a revision |
//! | a folder and a revision | every change after it, in order, or a resync |
//! | a time | a lease: what is put under it goes when nobody keeps it alive |
//!
//! [`Embedded`] keeps it in one file on one machine; [`Etcd`] in etcd on several. Consensus is etcd's, never
//! our own. On top, the same for both: [`Election`] (one leader at a time, whose term fences off those before
//! it) and [`Membership`] (who is there).
//!
//! It fails with [`StoreError`], which says whether a write may be there nevertheless. Losing the store stops
//! nobody: levels go on with their last instructions.

mod election;
mod embedded;
mod entry;
mod error;
mod etcd;
mod key;
mod lease;
mod membership;
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
pub use store::Store;
pub use transaction::{Committed, Expect, Refusal, Transaction, TransactionError, Write};
pub use watch::{Watch, WatchEvent};
