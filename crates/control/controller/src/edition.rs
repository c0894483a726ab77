use std::fmt;

use serde::{Deserialize, Serialize};

/// Identifies instructions. The later term is newer; within a term, the larger generation. A new
/// leader has a later term than all before it, so instructions of a former leader are always older.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// The store's revision when the leader was elected, or more if members already had later
    /// instructions.
    pub term: u64,
    /// The plan's generation.
    pub generation: u64,
}

impl fmt::Display for Edition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.generation)
    }
}
