//! What is known to be done of several slices.

use std::sync::Arc;

use crate::controller::{Controller, Row};
use crate::ids::SliceId;
use crate::positions::Positions;

/// What was done of slices before somebody had them. Slices that came together share it: there are as many positions to look
/// at as there were handovers, not as there are slices; and a move that begins looks at none.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    known: Vec<Arc<Positions>>,
    /// Of some of the slices nothing is known.
    unknown: bool,
}

impl Floors {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut floors = Self::default();
        for row in rows {
            match &row.floor {
                None => floors.unknown = true,
                Some(floor) if floors.known.last().is_some_and(|it| Arc::ptr_eq(it, floor)) => {}
                Some(floor) => floors.known.push(floor.clone()),
            }
        }
        floors.known.sort_unstable_by_key(Arc::as_ptr);
        floors.known.dedup_by(|a, b| Arc::ptr_eq(a, b));
        floors
    }

    /// Done of each of them.
    pub(super) fn least(&self) -> Positions {
        let known = (!self.unknown).then_some(&self.known).into_iter().flatten();
        let least = known.map(|floor| (**floor).clone()).reduce(|a, b| a.least(&b));
        least.unwrap_or_default()
    }
}

impl<T> Controller<T> {
    pub(super) fn floors_of(&self, slices: &[SliceId]) -> Floors {
        Floors::of(slices.iter().filter_map(|slice| self.table.get(slice)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Group, Writer};

    #[test]
    fn of_slices_that_came_together_and_of_others_the_least_is_done_and_nothing_if_one_is_unknown()
    {
        let at = |position| -> Positions {
            [(Writer { group: Group::BASE, id: 1 }, position)].into_iter().collect()
        };
        let [one, other] = [7, 5].map(|position| Some(Arc::new(at(position))));
        let row = |floor: &Option<Arc<Positions>>| Row { floor: floor.clone(), ..Row::default() };
        let rows = [row(&one), row(&other), row(&one), row(&one)];
        let floors = Floors::of(rows.iter());
        assert_eq!((floors.known.len(), floors.least()), (2, at(5)));
        let rows = [row(&one), row(&None)];
        assert_eq!(Floors::of(rows.iter()).least(), Positions::default());
        assert_eq!(Floors::of([].iter()).least(), Positions::default());
    }
}
