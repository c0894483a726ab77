use proptest::prelude::*;

use super::*;

const T0: u64 = 1_700_000_000;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn cpu(percent: f64) -> Sample {
    Sample { cpu_percent: Some(percent), ..Sample::default() }
}

fn small() -> Repository {
    let tier = |seconds, slots| Tier { resolution: s(seconds), slots };
    Repository::new(RepositoryOptions {
        tiers: vec![tier(1, 20), tier(10, 12)],
        nodes_max: 3,
        ..RepositoryOptions::default()
    })
}

fn means(points: &[Point]) -> Vec<(u64, f64)> {
    points.iter().map(|p| (p.at.as_secs() - T0, p.cpu.unwrap().mean_percent)).collect()
}

#[test]
fn reported_samples_are_found_by_time_range() {
    let mut repository = small();
    for i in 0..10 {
        repository.insert("a", s(T0 + i), cpu(i as f64), s(T0 + i)).unwrap();
    }
    let now = s(T0 + 9);
    let points = repository.range("a", s(T0 + 3), s(T0 + 6), s(1), now).unwrap();
    assert_eq!(means(&points), [(3, 3.0), (4, 4.0), (5, 5.0)]);
    assert_eq!(repository.latest("a"), Some((now, cpu(9.0))));
}

#[test]
fn older_history_is_coarser() {
    let mut repository = small();
    for i in 0..100 {
        repository.insert("a", s(T0 + i), cpu(i as f64), s(T0 + i)).unwrap();
    }
    let points = repository.range("a", s(T0), s(T0 + 30), s(1), s(T0 + 99)).unwrap();
    assert_eq!(means(&points), [(0, 4.5), (10, 14.5), (20, 24.5)]);
    assert_eq!(points[0].cpu.unwrap(), Spread { mean_percent: 4.5, max_percent: 9.0, samples: 10 });
}

#[test]
fn a_longer_step_merges_slots() {
    let mut repository = small();
    for i in 0..20 {
        repository.insert("a", s(T0 + i), cpu(i as f64), s(T0 + i)).unwrap();
    }
    let points = repository.range("a", s(T0), s(T0 + 20), s(5), s(T0 + 19)).unwrap();
    assert_eq!(means(&points), [(0, 2.0), (5, 7.0), (10, 12.0), (15, 17.0)]);
}

#[test]
fn late_samples_find_their_place_in_any_order() {
    let mut forwards = small();
    let mut backwards = small();
    let now = s(T0 + 60);
    for i in 0..60 {
        forwards.insert("a", s(T0 + i), cpu(i as f64), now).unwrap();
        backwards.insert("a", s(T0 + 59 - i), cpu((59 - i) as f64), now).unwrap();
    }
    for (from, to) in [(T0, T0 + 60), (T0 + 45, T0 + 60)] {
        let one = forwards.range("a", s(from), s(to), s(1), now);
        assert_eq!(one, backwards.range("a", s(from), s(to), s(1), now));
        assert!(!one.unwrap().is_empty());
    }
    assert_eq!(backwards.latest("a"), Some((s(T0 + 59), cpu(59.0))));
}

#[test]
fn invalid_future_and_old_samples_are_rejected_and_counted() {
    let mut repository = small();
    let now = s(T0);
    for lie in [f64::NAN, f64::INFINITY, -1.0, -0.001, 100.001, 1e9] {
        assert_eq!(repository.insert("a", now, cpu(lie), now), Err(Refused::NotAPercent));
    }
    assert_eq!(repository.insert("a", s(T0 + 6), cpu(1.0), now), Err(Refused::Ahead));
    assert_eq!(repository.insert("a", s(T0 - 1000), cpu(1.0), now), Err(Refused::TooOld));
    assert_eq!(repository.nodes().count(), 0, "a node that only lies takes no room");
    assert_eq!(repository.refused(Refused::NotAPercent), 6);
    assert_eq!(repository.refused(Refused::Ahead), 1);
    assert_eq!(repository.refused(Refused::TooOld), 1);
}

#[test]
fn nodes_are_bounded_and_forgotten() {
    let mut repository = small();
    for (i, name) in ["a", "b", "c"].iter().enumerate() {
        repository.insert(name, s(T0 + i as u64), cpu(1.0), s(T0 + 5)).unwrap();
    }
    let now = s(T0 + 5);
    assert_eq!(repository.insert("d", now, cpu(1.0), now), Err(Refused::TooManyNodes));
    assert_eq!(repository.forget_older_than(s(4), now), 1);
    repository.insert("d", now, cpu(1.0), now).unwrap();
    assert!(repository.forget("b") && !repository.forget("b"));
    assert_eq!(repository.nodes().collect::<Vec<_>>(), ["c", "d"]);
}

#[test]
fn a_missing_signal_is_not_a_zero() {
    let mut repository = small();
    let now = s(T0);
    repository.insert("a", now, cpu(50.0), now).unwrap();
    let only_net = Sample { net_percent: Some(0.0), ..Sample::default() };
    repository.insert("a", now, only_net, now).unwrap();
    let points = repository.range("a", now, s(T0 + 1), s(1), now).unwrap();
    assert_eq!(points[0].cpu.unwrap().mean_percent, 50.0);
    assert_eq!(points[0].net.unwrap().mean_percent, 0.0);
    assert_eq!(points[0].memory, None);
}

#[test]
fn pressure_has_a_history_of_its_own() {
    let mut repository = small();
    for (second, percent) in [(0, 10.0), (1, 30.0)] {
        let sample = Sample { io_pressure_percent: Some(percent), ..Sample::default() };
        repository.insert("a", s(T0 + second), sample, s(T0 + second)).unwrap();
    }
    let points = repository.range("a", s(T0), s(T0 + 2), s(2), s(T0 + 1)).unwrap();
    let io = Spread { mean_percent: 20.0, max_percent: 30.0, samples: 2 };
    assert_eq!((points.len(), points[0].io_pressure), (1, Some(io)));
    assert_eq!((points[0].cpu, points[0].cpu_pressure), (None, None));
    let lie = Sample { cpu_pressure_percent: Some(101.0), ..Sample::default() };
    assert_eq!(repository.insert("a", s(T0), lie, s(T0)), Err(Refused::NotAPercent));
}

#[test]
fn a_query_for_an_empty_range_or_unknown_node_is_rejected() {
    let mut repository = small();
    let now = s(T0);
    repository.insert("a", now, cpu(1.0), now).unwrap();
    let ask = |from, to, step| repository.range("a", from, to, step, now);
    assert_eq!(ask(now, now, s(1)), Err(QueryError::Empty));
    assert_eq!(ask(now, s(T0 + 1), Duration::ZERO), Err(QueryError::Empty));
    assert!(matches!(
        repository.range("b", now, s(T0 + 1), s(1), now),
        Err(QueryError::UnknownNode(_))
    ));
    // An unlimited range: only slots that can exist are searched.
    assert_eq!(ask(Duration::ZERO, Duration::MAX, s(1)).unwrap().len(), 1);
    assert_eq!(ask(Duration::ZERO, Duration::MAX, s(1 << 40)).unwrap().len(), 1);
}

#[test]
fn a_query_with_too_many_points_is_rejected() {
    let mut repository =
        Repository::new(RepositoryOptions { points_max: 10, ..RepositoryOptions::default() });
    let now = s(T0);
    repository.insert("a", now, cpu(1.0), now).unwrap();
    let asked = repository.range("a", s(T0 - 60), now, s(1), now);
    assert_eq!(asked, Err(QueryError::TooManyPoints { points: 60, max: 10 }));
}

#[test]
fn a_nodes_history_has_a_fixed_size() {
    let repository = Repository::new(RepositoryOptions::default());
    assert!(repository.bytes_per_node() <= 80 << 10, "{}", repository.bytes_per_node());
}

proptest! {
    /// Compares with a model that keeps every sample: any order, any delay, gaps, several samples
    /// in a slot.
    #[test]
    fn the_fine_tier_agrees_with_a_model_that_stores_every_sample(
        samples in prop::collection::vec((0_u64..40_000, 0.0_f64..=100.0), 1..200),
        step in 1_u64..7,
    ) {
        let mut repository = small();
        let now = Duration::from_millis(T0 * 1000 + 40_000);
        let mut kept = Vec::new();
        for (ms, percent) in samples {
            let at = Duration::from_millis(T0 * 1000 + ms);
            repository.insert("a", at, cpu(percent), now).unwrap();
            kept.push((at, percent as f32));
        }
        let from = s(T0 + 21);
        let found = repository.range("a", from, now, s(step), now).unwrap();
        let mut expected = Vec::new();
        for number in (from.as_secs() / step)..=(now.as_secs() / step) {
            let slots = s(number * step)..s((number + 1) * step);
            // Contents of the ring: the last 20 s, with the newest samples of each slot.
            let inside: Vec<f32> = kept.iter().filter(|(at, _)| slots.contains(at))
                .filter(|(at, _)| !kept.iter().any(|(newer, _)| newer.as_secs() > at.as_secs()
                    && (newer.as_secs() - at.as_secs()).is_multiple_of(20)))
                .map(|(_, percent)| *percent).collect();
            if !inside.is_empty() {
                let mean = inside.iter().sum::<f32>() / inside.len() as f32;
                let max = inside.iter().copied().fold(0.0, f32::max);
                expected.push((s(number * step), mean, max, inside.len() as u32));
            }
        }
        prop_assert_eq!(found.len(), expected.len());
        for (point, (at, mean, max, samples)) in found.iter().zip(expected) {
            let cpu = point.cpu.unwrap();
            prop_assert_eq!((point.at, cpu.samples), (at, samples));
            prop_assert!((cpu.mean_percent - f64::from(mean)).abs() < 0.01);
            prop_assert_eq!(cpu.max_percent, f64::from(max));
        }
    }
}
