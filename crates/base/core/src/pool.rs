use std::sync::Arc;

use crate::{Backend, SchedulerKind};

/// The number of a version. A larger one is newer, and an older version never replaces a newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The next generation.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

/// The backends behind a front door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The name, unique in a configuration.
    pub name: Arc<str>,
    /// The scheduler that picks a backend.
    pub scheduler: SchedulerKind,
    /// All backends, eligible or not, in configured order.
    pub backends: Vec<Backend>,
    /// Increases with every change of the other fields.
    pub generation: Generation,
}

impl Pool {
    /// The eligible backends, with their indices in [`Pool::backends`].
    pub fn eligible(&self) -> impl Iterator<Item = (usize, &Backend)> {
        self.backends.iter().enumerate().filter(|(_, b)| b.eligibility().is_eligible())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdminState, Health, Weight};

    #[test]
    fn the_eligible_keep_their_places() {
        let mut backends: Vec<Backend> = (1..=5)
            .map(|port| Backend::new(([192, 0, 2, 1], port).into(), Weight::DEFAULT))
            .collect();
        backends[0].admin = AdminState::Drain;
        backends[2].health = Health::Unhealthy;
        backends[3].weight = Weight::new(0).unwrap();
        let (name, scheduler) = ("web".into(), SchedulerKind::default());
        let pool = Pool { name, scheduler, backends, generation: Generation(1) };
        let found: Vec<_> = pool.eligible().map(|(at, it)| (at, it.address.port())).collect();
        assert_eq!(found, [(1, 2), (4, 5)]);
    }

    #[test]
    fn a_later_generation_is_larger() {
        assert!(Generation::default().next() > Generation::default());
    }
}
