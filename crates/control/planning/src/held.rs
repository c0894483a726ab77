//! Elastic pools without a controller: each keeps the number of backends that it had, and at least
//! its minimum. No I/O.

use equipoise_controller::{Entry, Roster, Wanted};
use equipoise_driver::{BackendState, ElasticBackend, PoolView};
use equipoise_planner::elastic::{Elasticity, Mode};

/// The fixed state of a pool without a controller.
pub(crate) struct Held {
    /// Backends that should exist.
    pub(crate) roster: Roster,
    /// Number of these backends, those listed in the file included.
    pub(crate) target: u32,
}

/// Fixes the size of a pool. `before` is the last roster; `own`, this member, has the backends of
/// `view`. Backends that ended with an earlier process are created again, and others up to `min`.
/// `listed` backends are in the file. `nonce` makes the keys of new backends unique.
pub(crate) fn hold(
    before: &Roster,
    own: &str,
    view: &PoolView,
    elastic: &Elasticity,
    listed: u32,
    nonce: &str,
) -> Held {
    let mut roster = before.clone();
    roster.next_number = roster.next_number.max(view.next_number).max(1);
    let lost = lost(before, own, view);
    let is_there = |name: &str| view.backends.iter().any(|made| made.name == name);
    roster.backends.retain(|name, entry| entry.executor != own || is_there(name));
    let entry = |key: String, size: Option<String>| Entry {
        key,
        outlives: view.outlives,
        driver: view.driver.clone(),
        ..Entry::starting(own, size)
    };
    for made in &view.backends {
        let known = roster.backends.entry(made.name.clone());
        let known = known.or_insert_with(|| entry(made.name.clone(), made.size.clone()));
        (known.address, known.id) = (made.address, made.id.clone());
        (known.outlives, known.driver) = (made.outlives, made.driver.clone());
    }
    for size in missing(elastic, view, listed, &lost) {
        let name = format!("{}-e{}", view.pool, roster.next_number);
        roster.next_number += 1;
        let key = format!("{name}-{nonce}");
        roster.backends.insert(name, entry(key, size));
    }
    Held { roster, target: target(elastic, view, listed, lost.len() as u32) }
}

/// Sizes of backends that an earlier process had and this one does not have. A backend and its
/// replacement count once.
fn lost(before: &Roster, own: &str, view: &PoolView) -> Vec<Option<String>> {
    let is_there = |name: &str| view.backends.iter().any(|made| made.name == name);
    let is_replaced =
        |name: &str| before.backends.values().any(|entry| entry.replaces.as_deref() == Some(name));
    let served = before.backends.iter().filter(|(name, entry)| {
        entry.executor == own && entry.wanted == Wanted::Serve && !is_there(name)
    });
    let is_lost = |(name, entry): &(&String, &Entry)| {
        !is_replaced(name) && !entry.replaces.as_deref().is_some_and(is_there)
    };
    served.filter(is_lost).map(|(_, entry)| entry.size.clone()).collect()
}

/// Backends of a pool, the `listed` ones of the file included.
fn count(view: &PoolView, listed: u32) -> u32 {
    let stays = |it: &&ElasticBackend| {
        matches!(it.state, BackendState::Starting | BackendState::Ready | BackendState::Failed)
    };
    listed + view.backends.iter().filter(stays).count() as u32
}

/// The number of backends that the pool is fixed at.
fn target(elastic: &Elasticity, view: &PoolView, listed: u32, lost: u32) -> u32 {
    let there = count(view, listed);
    match elastic.mode {
        Mode::Pinned(count) => count,
        Mode::Paused => there,
        Mode::Auto => (there + lost).clamp(elastic.min, elastic.max).max(there),
    }
}

/// Sizes of the backends to create: those of lost backends first, then the cheapest size.
fn missing(
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

    fn entry(wanted: Wanted) -> Entry {
        let view = PoolView { pool: "web".to_string(), ..PoolView::default() };
        let elastic = Elasticity { min: 1, max: 1, ..Elasticity::default() };
        let held = hold(&Roster::default(), "a", &view, &elastic, 0, "n");
        Entry { wanted, ..held.roster.backends["web-e1"].clone() }
    }

    fn roster(entries: &[(&str, Wanted, Option<&str>)]) -> Roster {
        let one = |(name, wanted, replaces): &(&str, Wanted, Option<&str>)| {
            let replaces = replaces.map(str::to_string);
            (name.to_string(), Entry { replaces, ..entry(*wanted) })
        };
        Roster { next_number: 9, backends: entries.iter().map(one).collect(), ..Roster::default() }
    }

    fn made(name: &str) -> ElasticBackend {
        ElasticBackend {
            name: name.to_string(),
            address: Some(([192, 0, 2, 1], 80).into()),
            size: None,
            state: BackendState::Ready,
            id: Some("i".to_string()),
            problem: None,
            is_outdated: false,
            driver: Some("scripts".to_string()),
            outlives: true,
            replaces: None,
            key: None,
        }
    }

    #[test]
    fn lost_backends_are_recreated_between_min_and_max_of_the_pool() {
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
    fn recreated_backends_have_their_former_size_and_others_the_cheapest() {
        let size = |price| Size { speed: 1.0, price };
        let sizes = [("a".to_string(), size(9.0)), ("b".to_string(), size(1.0))].into();
        let elastic = Elasticity { min: 3, max: 5, sizes, ..Elasticity::default() };
        let lost = ["a", "gone"].map(|size| Some(size.to_string()));
        let found = missing(&elastic, &PoolView::default(), 0, &lost);
        assert_eq!(found, ["a", "b", "b"].map(|size| Some(size.to_string())));
    }

    #[test]
    fn leaving_backends_are_not_lost_and_a_replaced_backend_counts_once() {
        use Wanted::{Drain, Leave, Serve};
        let before = roster(&[
            ("web-e1", Serve, None),
            ("web-e2", Serve, None),
            ("web-e3", Drain, None),
            ("web-e4", Leave, None),
            ("web-e5", Serve, Some("web-e1")),
        ]);
        let mut view = PoolView { pool: "web".to_string(), ..PoolView::default() };
        assert_eq!(lost(&before, "a", &view).len(), 2);
        assert_eq!(lost(&before, "b", &view).len(), 0);
        view.backends = vec![made("web-e1")];
        assert_eq!(lost(&before, "a", &view).len(), 1, "the first serves on");
    }

    #[test]
    fn existing_backends_stay_and_ended_backends_return_under_new_names() {
        let before = roster(&[("web-e1", Wanted::Serve, None), ("web-e2", Wanted::Serve, None)]);
        let (backends, pool) = (vec![made("web-e2"), made("web-e10")], "web".to_string());
        let mut view = PoolView { pool, backends, next_number: 11, ..PoolView::default() };
        let elastic = Elasticity { min: 3, max: 5, ..Elasticity::default() };
        let held = hold(&before, "a", &view, &elastic, 0, "n");
        let names: Vec<_> = held.roster.backends.keys().map(String::as_str).collect();
        assert_eq!((names, held.target), (vec!["web-e10", "web-e11", "web-e2"], 3));
        let found = &held.roster.backends["web-e10"];
        assert!(found.outlives && found.address.is_some() && found.driver.is_some());
        assert_eq!(held.roster.backends["web-e11"].key, "web-e11-n");
        // The second call creates nothing.
        view.backends.push(made("web-e11"));
        assert_eq!(hold(&held.roster, "a", &view, &elastic, 0, "m").roster.next_number, 12);
    }
}
