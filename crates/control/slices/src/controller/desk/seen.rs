//! Sums of the workers' reports between two rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::{Incarnation, SliceId};

use equipoise_slice_dds::Report;

/// Reports since the last round.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Time that the reports of each worker cover.
    time: BTreeMap<Incarnation, Duration>,
    /// Activity of each slice, as its owner reported it.
    slices: BTreeMap<SliceId, (Incarnation, Activity)>,
}

/// Activity in a slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Items that arrived.
    pub(super) arrived: u64,
    /// Items that were processed.
    pub(super) done: u64,
    /// Time spent on these.
    pub(super) busy: Duration,
}

impl Seen {
    /// Adds a report; `before` is the previous one of the same worker. The arrivals of a slice are
    /// its processed items and the growth of its queue, without the items that the previous owner
    /// handed over.
    pub(super) fn add(
        &mut self,
        report: &Report,
        before: Option<&Report>,
        owner: impl Fn(SliceId) -> Option<Incarnation>,
    ) {
        let incarnation = report.incarnation;
        *self.time.entry(incarnation).or_default() += report.period;
        let before = before.filter(|before| before.incarnation == incarnation);
        let waited: BTreeMap<_, _> = before
            .into_iter()
            .flat_map(|before| before.slices.iter().map(|of| (of.slice, of.queued)))
            .collect();
        for of in &report.slices {
            // A previous owner reports items that it still has in hand; they arrived earlier.
            if owner(of.slice) != Some(incarnation) {
                continue;
            }
            let waited = waited.get(&of.slice).copied().unwrap_or(0);
            let (by, activity) =
                self.slices.entry(of.slice).or_insert((incarnation, Activity::default()));
            if *by != incarnation {
                (*by, *activity) = (incarnation, Activity::default());
            }
            activity.arrived += (of.done + of.queued).saturating_sub(waited + of.handed_over);
            activity.done += of.done;
            activity.busy += of.busy;
        }
    }

    /// Activity of `slice`, as `owner` reported it.
    pub(super) fn of(&self, slice: SliceId, owner: Incarnation) -> Activity {
        let of = self.slices.get(&slice).filter(|(incarnation, _)| *incarnation == owner);
        of.map(|(_, activity)| *activity).unwrap_or_default()
    }

    /// Time that the reports of `incarnation` cover.
    pub(super) fn time(&self, incarnation: Incarnation) -> Duration {
        self.time.get(&incarnation).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use equipoise_slice::{Order, WorkerId};

    use super::*;
    use equipoise_slice_dds::{SliceReport, Terms};

    const ONE: Incarnation = Incarnation { worker: WorkerId(1), number: 5 };

    fn report(incarnation: Incarnation, slices: &[(u32, u64, u64)]) -> Report {
        let of = |&(slice, done, queued): &(u32, u64, u64)| SliceReport {
            slice: SliceId(slice),
            busy: Duration::from_millis(done),
            done,
            queued,
            handed_over: 0,
            queue_age: Duration::ZERO,
        };
        Report {
            incarnation,
            numbering: Default::default(),
            name: "one".into(),
            process: Default::default(),
            weight: 1,
            terms: Terms {
                slices: 9,
                order: Order::Free,
                lease: Duration::ZERO,
                topics: 0,
                checkpoints: false,
                folder: false,
            },
            leaving: false,
            period: Duration::from_millis(250),
            queued: 0,
            in_hand: 0,
            stalled: Duration::ZERO,
            oldest: None,
            done: 0,
            drops: Vec::new(),
            slices: slices.iter().map(of).collect(),
            checkpoints: None,
            folder_problem: None,
        }
    }

    #[test]
    fn arrivals_are_processed_items_plus_growth_of_the_queue() {
        let mut seen = Seen::default();
        let first = report(ONE, &[(1, 10, 3), (2, 0, 5)]);
        let second = report(ONE, &[(1, 2, 0), (2, 0, 9), (3, 1, 0)]);
        let owner = |slice: SliceId| (slice.0 < 3).then_some(ONE);
        seen.add(&first, None, owner);
        seen.add(&second, Some(&first), owner);
        assert_eq!(seen.time(ONE), Duration::from_millis(500));
        let of = |slice| seen.of(SliceId(slice), ONE);
        let busy = Duration::from_millis(12);
        assert_eq!(of(1), Activity { arrived: 13, done: 12, busy }, "3 of them had waited");
        assert_eq!(of(2), Activity { arrived: 9, ..Activity::default() });
        assert_eq!(of(3), Activity::default(), "another worker owns it");
    }

    #[test]
    fn handed_over_items_do_not_count_as_arrivals() {
        let mut seen = Seen::default();
        let mut taken = report(ONE, &[(1, 10, 33)]);
        taken.slices[0].handed_over = 40;
        seen.add(&taken, None, |_| Some(ONE));
        assert_eq!(seen.of(SliceId(1), ONE).arrived, 3);
        let next = report(ONE, &[(1, 10, 25)]);
        seen.add(&next, Some(&taken), |_| Some(ONE));
        assert_eq!(seen.of(SliceId(1), ONE).arrived, 5);
    }

    #[test]
    fn a_new_incarnation_does_not_inherit_the_previous_queue_length() {
        let mut seen = Seen::default();
        let next = Incarnation { number: 6, ..ONE };
        let before = report(ONE, &[(1, 0, 40)]);
        seen.add(&before, None, |_| Some(ONE));
        seen.add(&report(next, &[(1, 1, 1)]), Some(&before), |_| Some(next));
        assert_eq!(seen.of(SliceId(1), next).arrived, 2);
        assert_eq!(seen.of(SliceId(1), ONE), Activity::default());
    }
}
