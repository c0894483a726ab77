use std::sync::Arc;

use crate::{Backend, SchedulerKind};

/// Numbers successive versions of a thing; a larger one is newer, an older one never replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

/// The backends behind a front door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Unique in a configuration.
    pub name: Arc<str>,
    /// How a backend is picked.
    pub scheduler: SchedulerKind,
    /// All of them, eligible or not, in configured order.
    pub backends: Vec<Backend>,
    /// Rises with every change of the above.
    pub generation: Generation,
}

impl Pool {
    /// The backends that may be given new work, with their places in [`Pool::backends`].
    pub fn eligible(&self) -> impl Iterator<Item = (usize, &Backend)> {
        self.backends.iter().enumerate().filter(|(_, b)| b.eligibility().is_eligible())
    }
}
