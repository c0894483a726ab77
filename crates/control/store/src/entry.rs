use std::fmt;
use std::sync::Arc;

use crate::{Key, LeaseId};

/// A version of the whole store. Every transaction with changes makes the next one; a larger
/// revision is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key's value and its revisions. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key of the entry.
    pub key: Key,
    /// Value; opaque to the store.
    pub value: Arc<[u8]>,
    /// Revision that created the key. A key that is deleted and put again gets a new one.
    pub created: Revision,
    /// Revision of the last put.
    pub modified: Revision,
    /// Lease of the entry: it is deleted with the lease.
    pub lease: Option<LeaseId>,
}

/// Contents of a folder at one revision, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Revision of the listing. A watch after it misses nothing.
    pub revision: Revision,
    /// Entries of the folder.
    pub entries: Vec<Entry>,
}

/// Change of one key in an [`Update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key was put.
    Put(Entry),
    /// The key was deleted, or its lease ended.
    Deleted(Key),
}

impl Change {
    /// Returns the changed key.
    pub fn key(&self) -> &Key {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Deleted(key) => key,
        }
    }
}

/// All changes of one transaction, at least one, in the order of the writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Revision that the transaction made.
    pub revision: Revision,
    /// Changes.
    pub changes: Vec<Change>,
}
