//! Pools without a controller: each keeps as many backends as it had, or its least. No I/O.

use std::collections::BTreeMap;

use equipoise_driver::{BackendState, PoolView, Record, Recorded, RecordedState};
use equipoise_planner::elastic::{Elasticity, Mode};

/// Sizes of those that an earlier process had made and that went with it, so that `view` does not have them. While a driver
/// took over from another, each may have been there twice: those of the driver that had more count.
pub(super) fn lost(record: Option<&Record>, view: &PoolView) -> Vec<Option<String>> {
    let recorded = record.into_iter().flat_map(|record| &record.backends);
    let served = recorded
        .filter(|it| matches!(it.state, RecordedState::Adding | RecordedState::Ready))
        .filter(|it| view.backends.iter().all(|made| made.name != it.name));
    let mut by_maker: BTreeMap<u32, Vec<&Recorded>> = BTreeMap::new();
    served.for_each(|it| by_maker.entry(it.maker).or_default().push(it));
    let most = by_maker.into_values().max_by_key(Vec::len).unwrap_or_default();
    most.into_iter().map(|it| it.size.clone()).collect()
}

/// What a pool has, beside the `listed` ones of its file.
fn count(view: &PoolView, listed: u32) -> u32 {
    let stays = |it: &&equipoise_driver::ElasticBackend| {
        matches!(it.state, BackendState::Starting | BackendState::Ready | BackendState::Failed)
    };
    listed + view.backends.iter().filter(stays).count() as u32
}

/// How many backends a pool is held at.
pub(super) fn target(elastic: &Elasticity, view: &PoolView, listed: u32, lost: u32) -> u32 {
    let there = count(view, listed);
    match elastic.mode {
        Mode::Pinned(count) => count,
        Mode::Paused => there,
        Mode::Auto => (there + lost).clamp(elastic.min, elastic.max).max(there),
    }
}

/// Sizes of backends to make until there are as many: those that were lost again, then the cheapest.
pub(super) fn missing(
    elastic: &Elasticity,
    view: &PoolView,
    listed: u32,
    lost: &[Option<String>],
) -> Vec<Option<String>> {
    let target = target(elastic, view, listed, lost.len() as u32);
    let missing = target.saturating_sub(count(view, listed)) as usize;
    let known = |size: &Option<String>| match size {
        Some(size) => elastic.sizes.contains_key(size),
        None => elastic.sizes.is_empty(),
    };
    let cheapest = elastic.sizes.iter().min_by(|a, b| a.1.price.total_cmp(&b.1.price));
    let cheapest = cheapest.map(|(name, _)| name.clone());
    let sizes = lost.iter().filter(|size| known(size)).cloned().chain(std::iter::repeat(cheapest));
    sizes.take(missing).collect()
}

#[cfg(test)]
mod tests {
    use equipoise_planner::elastic::Size;

    use super::*;

    fn recorded(name: &str, state: RecordedState, size: Option<&str>) -> Recorded {
        Recorded {
            name: name.to_string(),
            size: size.map(str::to_string),
            key: String::new(),
            state,
            address: None,
            id: None,
            maker: 0,
        }
    }

    #[test]
    fn what_went_with_its_process_is_made_again_and_at_least_the_least() {
        let elastic = Elasticity { min: 2, max: 5, ..Elasticity::default() };
        let nothing = PoolView::default();
        let gone = |count: usize| vec![None; count];
        let rows = [
            (0, gone(0), 2),
            (0, gone(4), 4),
            (0, gone(9), 5),
            (1, gone(0), 1),
            (1, gone(2), 2),
            (3, gone(0), 0),
        ];
        for (listed, lost, expected) in rows {
            let found = missing(&elastic, &nothing, listed, &lost);
            assert_eq!(found, gone(expected), "{listed} {lost:?}");
        }
        let pinned = Elasticity { mode: Mode::Pinned(1), ..elastic.clone() };
        assert_eq!(missing(&pinned, &nothing, 0, &gone(4)), gone(1));
        let paused = Elasticity { mode: Mode::Paused, ..elastic };
        assert_eq!(missing(&paused, &nothing, 0, &gone(4)), gone(0));
    }

    #[test]
    fn those_that_were_lost_have_their_sizes_and_others_the_cheapest() {
        let size = |price| Size { speed: 1.0, price };
        let sizes = [("a".to_string(), size(9.0)), ("b".to_string(), size(1.0))].into();
        let elastic = Elasticity { min: 3, max: 5, sizes, ..Elasticity::default() };
        let lost = ["a", "gone"].map(|size| Some(size.to_string()));
        let found = missing(&elastic, &PoolView::default(), 0, &lost);
        assert_eq!(found, ["a", "b", "b"].map(|size| Some(size.to_string())));
    }

    #[test]
    fn what_was_leaving_is_not_lost_and_what_was_being_replaced_is_lost_once() {
        use RecordedState::{Adding, Draining, Leaving, Ready};
        let states = [Ready, Adding, Draining, Leaving];
        let named =
            |(n, state): (usize, &RecordedState)| recorded(&format!("web-e{n}"), *state, None);
        let mut backends: Vec<Recorded> = states.iter().enumerate().map(named).collect();
        backends.push(Recorded { maker: 1, ..recorded("web-e9", Ready, None) });
        let record = Record { backends, ..Record::empty("web") };
        assert_eq!(lost(Some(&record), &PoolView::default()).len(), 2);
        assert_eq!(lost(None, &PoolView::default()).len(), 0);
    }
}
