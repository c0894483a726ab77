//! Pools without a controller: each keeps as many backends as it had, or its least. No I/O.

use std::collections::BTreeMap;

use equipoise_core::AdminState;
use equipoise_driver::{PoolView, Record, RecordedState};
use equipoise_planner::elastic::{Elasticity, Mode, Scaling};

/// Sizes of those that an earlier process had made and that went with it, so that `view` does not have them.
pub(super) fn lost(record: Option<&Record>, view: &PoolView) -> Vec<Option<String>> {
    let recorded = record.into_iter().flat_map(|record| &record.backends);
    let served = recorded
        .filter(|it| matches!(it.state, RecordedState::Adding | RecordedState::Ready))
        .filter(|it| it.replaces.is_none());
    let lost = served.filter(|it| view.backends.iter().all(|made| made.name != it.name));
    lost.map(|it| it.size.clone()).collect()
}

/// What a pool has, beside the `listed` ones of its file.
fn count(view: &PoolView, listed: u32) -> u32 {
    let stays =
        |it: &&equipoise_driver::ElasticBackend| it.admin() == AdminState::Up && !it.is_replaced;
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

/// The steps to that many: those that were lost again, then of the cheapest size.
pub(super) fn steps(
    elastic: &Elasticity,
    view: &PoolView,
    listed: u32,
    lost: &[Option<String>],
) -> Vec<Scaling> {
    let target = target(elastic, view, listed, lost.len() as u32);
    let missing = target.saturating_sub(count(view, listed)) as usize;
    let known = |size: &Option<String>| match size {
        Some(size) => elastic.sizes.contains_key(size),
        None => elastic.sizes.is_empty(),
    };
    let cheapest = elastic.sizes.iter().min_by(|a, b| a.1.price.total_cmp(&b.1.price));
    let cheapest = cheapest.map(|(name, _)| name.clone());
    let mut counts: BTreeMap<Option<String>, u32> = BTreeMap::new();
    let sizes = lost.iter().filter(|size| known(size)).cloned().chain(std::iter::repeat(cheapest));
    sizes.take(missing).for_each(|size| *counts.entry(size).or_default() += 1);
    counts.into_iter().map(|(size, count)| Scaling::Out { size, count }).collect()
}

#[cfg(test)]
mod tests {
    use equipoise_driver::Recorded;
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
            ready_unix_ms: None,
            maker: 0,
            replaces: None,
        }
    }

    fn out(size: Option<&str>, count: u32) -> Scaling {
        Scaling::Out { size: size.map(str::to_string), count }
    }

    #[test]
    fn what_went_with_its_process_is_made_again_and_at_least_the_least() {
        let elastic = Elasticity { min: 2, max: 5, ..Elasticity::default() };
        let nothing = PoolView::default();
        let gone = |count: usize| vec![None; count];
        let rows = [
            (0, gone(0), vec![out(None, 2)]),
            (0, gone(4), vec![out(None, 4)]),
            (0, gone(9), vec![out(None, 5)]),
            (1, gone(0), vec![out(None, 1)]),
            (1, gone(2), vec![out(None, 2)]),
            (3, gone(0), vec![]),
        ];
        for (listed, lost, expected) in rows {
            assert_eq!(steps(&elastic, &nothing, listed, &lost), expected, "{listed} {lost:?}");
        }
        let pinned = Elasticity { mode: Mode::Pinned(1), ..elastic.clone() };
        assert_eq!(steps(&pinned, &nothing, 0, &gone(4)), [out(None, 1)]);
        let paused = Elasticity { mode: Mode::Paused, ..elastic };
        assert_eq!(steps(&paused, &nothing, 0, &gone(4)), []);
    }

    #[test]
    fn those_that_were_lost_have_their_sizes_and_others_the_cheapest() {
        let size = |price| Size { speed: 1.0, price };
        let sizes = [("a".to_string(), size(9.0)), ("b".to_string(), size(1.0))].into();
        let elastic = Elasticity { min: 3, max: 5, sizes, ..Elasticity::default() };
        let lost = ["a", "gone"].map(|size| Some(size.to_string()));
        let found = steps(&elastic, &PoolView::default(), 0, &lost);
        assert_eq!(found, [out(Some("a"), 1), out(Some("b"), 2)]);
    }

    #[test]
    fn who_was_leaving_or_replacing_another_is_not_lost() {
        use RecordedState::{Adding, Draining, Leaving, Ready};
        let states = [Ready, Adding, Draining, Leaving];
        let named =
            |(n, state): (usize, &RecordedState)| recorded(&format!("web-e{n}"), *state, None);
        let mut backends: Vec<Recorded> = states.iter().enumerate().map(named).collect();
        let replaces = Some("web-e0".to_string());
        backends.push(Recorded { replaces, ..recorded("web-e9", Ready, None) });
        let record = Record { backends, ..Record::empty("web") };
        assert_eq!(lost(Some(&record), &PoolView::default()).len(), 2);
        assert_eq!(lost(None, &PoolView::default()).len(), 0);
    }
}
