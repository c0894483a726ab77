use std::fmt;
use std::sync::Arc;

use crate::{Key, LeaseId};

/// A moment of the whole store. Every transaction that changes something makes the next one, so of two
/// revisions the larger is the later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key's value, and when it came to be. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is called.
    pub key: Key,
    /// What it holds; the store does not look into it.
    pub value: Arc<[u8]>,
    /// When the key was made; a key that was deleted and put again has a new one.
    pub created: Revision,
    /// When its value was last put.
    pub modified: Revision,
    /// The lease with which it goes, if it has one.
    pub lease: Option<LeaseId>,
}

/// What a folder held at one revision, in the order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// When. A watch after this revision misses nothing.
    pub revision: Revision,
    /// What there was.
    pub entries: Vec<Entry>,
}

/// One key's part of an [`Update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was put.
    Put(Entry),
    /// It was deleted, or its lease ended.
    Deleted(Key),
}

impl Change {
    /// Which key.
    pub fn key(&self) -> &Key {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Deleted(key) => key,
        }
    }
}

/// What one transaction changed, whole: at least one change, in the order in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The revision that it made.
    pub revision: Revision,
    /// What it did.
    pub changes: Vec<Change>,
}
