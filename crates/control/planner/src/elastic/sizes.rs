//! Sizes: the capacity of a backend of each size, which size to add, and which backend to remove.

use equipoise_core::Health;

use crate::demand::PoolHistory;
use crate::elasticity::{Elasticity, Size};
use crate::inventory::{BackendSpec, PoolSpec};

/// An available size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind {
    /// `None` if the pool's backends are all alike.
    pub(crate) name: Option<String>,
    /// As measured or configured; in any unit common to the kinds.
    pub(crate) speed: f64,
    pub(crate) price: f64,
}

impl Kind {
    /// Speed per price.
    pub(crate) fn efficiency(&self) -> f64 {
        self.speed / self.price
    }
}

/// The sizes of a pool, with the capacity of their backends.
pub(crate) struct Kinds {
    pub(crate) kinds: Vec<Kind>,
    /// Capacity of a backend of speed 1.
    pub(crate) unit: f64,
    /// Concurrency limit of a backend of speed 1, if there is one.
    pub(crate) limit: Option<f64>,
    /// The same, if it was configured or learnt.
    pub(crate) remembered: Option<f64>,
}

impl Kinds {
    /// Computes the capacity from the backends' limits, or from the `known` limit if there are
    /// none.
    pub(crate) fn of(
        elastic: &Elasticity,
        pool: &PoolSpec,
        past: Option<&PoolHistory>,
        known: Option<f64>,
    ) -> Kinds {
        let speed_of = |size: Option<&String>| {
            size.and_then(|size| elastic.sizes.get(size)).map_or(1.0, |size| size.speed)
        };
        let of_each = |limit: fn(&PoolHistory, &str) -> Option<f64>| {
            let one = |(name, spec): (&String, &BackendSpec)| {
                let limit = limit(past?, name)?;
                Some((spec.size.clone(), limit))
            };
            // The limit of a failing backend decreases with its failures.
            let healthy = pool.backends.iter().filter(|(_, it)| it.health != Health::Unhealthy);
            healthy.filter_map(one).collect::<Vec<_>>()
        };
        let (limits, guesses) = (of_each(PoolHistory::limit), of_each(PoolHistory::guess));
        let unit_of = |limits: &[(Option<String>, f64)]| {
            mean(limits.iter().map(|(size, limit)| limit / speed_of(size.as_ref())))
        };
        let known = known.filter(|known| known.is_finite() && *known > 0.0);
        let remembered = unit_of(&limits).or(known);
        // Before any limit is known, the initial limit of learning is in flight without waiting.
        let limit = remembered.or_else(|| unit_of(&guesses));
        let unit = elastic.target.stated().or(limit).unwrap_or(1.0);
        if elastic.sizes.is_empty() {
            let kinds = vec![Kind { name: None, speed: unit, price: 1.0 }];
            return Kinds { kinds, unit, limit, remembered };
        }
        let kind = |(name, size): (&String, &Size)| {
            let of_it = limits.iter().filter(|(of, _)| of.as_ref() == Some(name));
            let own = of_it.map(|(_, limit)| *limit);
            let own = mean(own).filter(|_| elastic.target.stated().is_none());
            let speed = own.unwrap_or(size.speed * unit);
            Kind { name: Some(name.clone()), speed, price: size.price }
        };
        Kinds { kinds: elastic.sizes.iter().map(kind).collect(), unit, limit, remembered }
    }
}

fn mean(of: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = of.fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The kind, and its number, that cover a shortfall of speed with at most `room` (1 or more)
/// backends.
///
/// The cheapest kind that alone covers it; of equally cheap ones, the one with most speed per
/// price. So a small shortfall gets a small backend, and a large one the most efficient. If no kind
/// can, as many of the fastest as fit. Kinds are not mixed in one step; the next step sees what is
/// left.
///
/// # Source
/// L3B's efficiency E = S/i, with the price in place of the number i, so that it also compares
/// sizes (the paper's vertical and diagonal scaling, which it leaves as future work).
pub(crate) fn cover(kinds: &[Kind], shortfall: f64, room: u32) -> Option<(&Kind, u32)> {
    let count = |kind: &Kind| ((shortfall / kind.speed - 1e-9).ceil().max(1.0)) as u32;
    let cost = |kind: &Kind| f64::from(count(kind)) * kind.price;
    let fits = kinds.iter().filter(|kind| count(kind) <= room);
    let cheapest = fits
        .min_by(|a, b| cost(a).total_cmp(&cost(b)).then(b.efficiency().total_cmp(&a.efficiency())));
    match cheapest {
        Some(kind) => Some((kind, count(kind))),
        None => fastest(kinds).map(|kind| (kind, room)),
    }
}

/// The fastest kind; of equally fast ones the cheapest.
pub(crate) fn fastest(kinds: &[Kind]) -> Option<&Kind> {
    kinds.iter().min_by(|a, b| b.speed.total_cmp(&a.speed).then(a.price.total_cmp(&b.price)))
}

/// The cheapest kind below `price` with at least this speed; of equally cheap ones the fastest.
pub(crate) fn cheaper(kinds: &[Kind], price: f64, speed: f64) -> Option<&Kind> {
    let enough = kinds.iter().filter(|kind| kind.price < price && kind.speed >= speed);
    enough.min_by(|a, b| a.price.total_cmp(&b.price).then(b.speed.total_cmp(&a.speed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<Kind> {
        let kind = |name: &str, speed, price| Kind { name: Some(name.to_string()), speed, price };
        vec![kind("small", 1.0, 1.0), kind("large", 4.0, 3.0), kind("huge", 8.0, 12.0)]
    }

    fn covered(shortfall: f64, room: u32) -> (String, u32) {
        let kinds = kinds();
        let (kind, count) = cover(&kinds, shortfall, room).unwrap();
        (kind.name.clone().unwrap(), count)
    }

    #[test]
    fn the_cheapest_that_makes_up_for_it_is_added() {
        let rows = [
            (0.1, 9, "small", 1),
            (1.0, 9, "small", 1),
            (2.0, 9, "small", 2),
            (3.0, 9, "large", 1), // three small ones cost the same, with less speed per price
            (5.0, 9, "small", 5),
            (7.0, 9, "large", 2),
            (2.0, 1, "large", 1), // two small ones do not fit
            (8.0, 1, "huge", 1),
            (99.0, 2, "huge", 2), // no kind covers it: the fastest
        ];
        for (shortfall, room, name, count) in rows {
            let found = covered(shortfall, room);
            assert_eq!(found, (name.to_string(), count), "{shortfall} with room for {room}");
        }
    }

    #[test]
    fn a_cheaper_one_must_be_fast_enough() {
        let kinds = kinds();
        for (price, speed, expected) in [
            (12.0, 0.5, Some("small")),
            (12.0, 1.5, Some("large")),
            (12.0, 4.5, None),
            (3.0, 0.5, Some("small")),
            (1.0, 0.5, None),
        ] {
            let found = cheaper(&kinds, price, speed).and_then(|kind| kind.name.as_deref());
            assert_eq!(found, expected, "below {price}, from {speed}");
        }
    }

    #[test]
    fn without_kinds_there_is_nothing_to_add() {
        assert_eq!(cover(&[], 1.0, 1), None);
    }
}
