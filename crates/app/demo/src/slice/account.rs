//! Accounts for every image.

use std::collections::BTreeMap;

use equipoise_api::wire::slice::StreamStatus;

use super::load::Outcome;

/// Counts of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    published: i64,
    replied: i64,
    twice: usize,
    never: usize,
}

/// Counts images by the client's outcome and by how often each was processed.
pub(super) fn of(outcome: &Outcome, done: &BTreeMap<i64, u32>) -> Account {
    Account {
        published: outcome.published,
        replied: outcome.replied,
        twice: done.values().filter(|count| **count > 1).count(),
        never: (0..outcome.published).filter(|id| !done.contains_key(id)).count(),
    }
}

impl Account {
    pub(super) fn is_clean(&self) -> bool {
        self.twice == 0 && self.never == 0 && self.replied == self.published
    }

    pub(super) fn text(&self, status: &StreamStatus) -> String {
        let Account { published, replied, twice, never } = self;
        let ms = |seconds: Option<f64>| 1000.0 * seconds.unwrap_or_default();
        format!(
            "{published} images published, {replied} replies; never processed: {never}; processed twice: {twice}\n\
             {} handovers while images flowed: median {:.1} ms, longest {:.1} ms",
            status.handovers_moved_total,
            ms(status.handover_seconds_p50),
            ms(status.handover_seconds_max),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprocessed_and_twice_processed_images_are_counted() {
        let outcome = Outcome { published: 4, replied: 4 };
        let clean = of(&outcome, &(0..4).map(|id| (id, 1)).collect());
        assert!(clean.is_clean());
        let odd = of(&outcome, &BTreeMap::from([(0, 1), (1, 2), (3, 1)]));
        assert_eq!(odd, Account { published: 4, replied: 4, twice: 1, never: 1 });
        assert!(!odd.is_clean());
        assert!(
            !of(&Outcome { published: 4, replied: 3 }, &(0..4).map(|id| (id, 1)).collect())
                .is_clean()
        );
    }
}
