//! L3B's regions of a speedup curve, and the top of a speed curve. Pure.

use std::fmt;

use equipoise_lab_runner::Row;

/// Where on the axis of N a number of endpoints is worth its while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// S < 1: slower than the bare endpoint.
    Slowdown,
    /// 1 <= S <= i.
    Sublinear,
    /// S > i.
    Superlinear,
}

/// A stretch of N of one kind; both ends were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    pub(crate) kind: Kind,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Slowdown => "slowdown",
            Kind::Sublinear => "sublinear",
            Kind::Superlinear => "superlinear",
        };
        if self.from == self.to {
            return write!(f, "{kind} at {}", self.from);
        }
        write!(f, "{kind} {} to {}", self.from, self.to)
    }
}

/// A column by N, of the rows that have it.
pub(crate) fn curve(rows: &[Row], column: &str) -> Vec<(f64, f64)> {
    rows.iter().filter_map(|row| Some((row.number("n")?, row.number(column)?))).collect()
}

/// S by N, in the order of N, for `endpoints`. `margin` is the part by which S must be beyond a
/// border to have crossed it: what repetitions of one measurement differ by. Until it has, it
/// belongs to the region that it comes from.
pub(crate) fn regions(curve: &[(f64, f64)], endpoints: f64, margin: f64) -> Vec<Region> {
    let plain = |speedup: f64| match speedup {
        s if s < 1.0 => Kind::Slowdown,
        s if s > endpoints => Kind::Superlinear,
        _ => Kind::Sublinear,
    };
    let mut regions: Vec<Region> = Vec::new();
    for &(n, speedup) in curve.iter().filter(|(_, speedup)| speedup.is_finite()) {
        let kind = match regions.last().map(|last| last.kind) {
            // It stays where it is if that is within the margin.
            Some(kind)
                if plain(speedup * (1.0 + margin)) == kind
                    || plain(speedup / (1.0 + margin)) == kind =>
            {
                kind
            }
            _ => plain(speedup),
        };
        match regions.last_mut() {
            Some(last) if last.kind == kind => last.to = n,
            _ => regions.push(Region { kind, from: n, to: n }),
        }
    }
    regions
}

/// The point with the largest value.
pub(crate) fn top(curve: &[(f64, f64)]) -> Option<(f64, f64)> {
    curve
        .iter()
        .copied()
        .filter(|(_, value)| value.is_finite())
        .reduce(|best, one| if one.1 > best.1 { one } else { best })
}

/// N from which V is at its top (95 % of the most), and from which it is below again, if it is.
pub(crate) fn plateau(curve: &[(f64, f64)]) -> Option<(f64, Option<f64>)> {
    let (_, most) = top(curve)?;
    let is_top = |value: f64| value >= 0.95 * most;
    let first = curve.iter().position(|(_, value)| is_top(*value))?;
    let last = curve.iter().rposition(|(_, value)| is_top(*value))?;
    Some((curve[first].0, curve.get(last + 1).map(|(n, _)| *n)))
}

/// The least N from which T stays above four times its value at the least load: the queue grows.
/// `None`: it does not.
pub(crate) fn saturation(times: &[(f64, f64)]) -> Option<f64> {
    let (_, least) = times.first()?;
    let last_fine = times.iter().rposition(|(_, time)| *time <= 4.0 * least)?;
    times.get(last_fine + 1).map(|(n, _)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(curve: &[(f64, f64)], endpoints: f64) -> Vec<String> {
        regions(curve, endpoints, 0.05).iter().map(ToString::to_string).collect()
    }

    /// As in the paper: a delay that is felt while the load is low, then a bare endpoint that is
    /// over-utilised, then two that are too.
    fn paper(n: f64) -> f64 {
        let queue = |n: f64, most: f64| 200.0 * (1.0 + ((n - most) / 6.0).exp()).ln();
        (10.0 + queue(n, 45.0)) / (14.0 + queue(n, 62.0))
    }

    #[test]
    fn the_papers_regions_are_found() {
        let ns = (1..=30).map(|at| f64::from(at) * 5.0);
        let curve: Vec<(f64, f64)> = ns.map(|n| (n, paper(n))).collect();
        let expected = [
            "slowdown 5 to 20",
            "sublinear 25 to 30",
            "superlinear 35 to 75",
            "sublinear 80 to 150",
        ];
        assert_eq!(texts(&curve, 2.0), expected);
        let (n, most) = top(&curve).unwrap();
        assert!(n == 50.0 && (6.2..6.4).contains(&most), "{n}: {most}");
    }

    /// A curve, its number of endpoints, its regions.
    type Crossing = (&'static [(f64, f64)], f64, &'static [&'static str]);

    #[test]
    fn borders_are_where_the_curve_crosses_them() {
        let rows: [Crossing; 5] = [
            (
                &[(5.0, 0.7), (10.0, 0.9), (15.0, 1.5)],
                2.0,
                &["slowdown 5 to 10", "sublinear at 15"],
            ),
            (&[(5.0, 3.0), (10.0, 5.0)], 2.0, &["superlinear 5 to 10"]),
            (
                &[(5.0, 1.2), (10.0, 2.6), (15.0, 1.3)],
                2.0,
                &["sublinear at 5", "superlinear at 10", "sublinear at 15"],
            ),
            (&[], 2.0, &[]),
            (&[(5.0, f64::NAN), (10.0, 1.5)], 2.0, &["sublinear at 10"]),
        ];
        for (curve, endpoints, expected) in rows {
            assert_eq!(texts(curve, endpoints), expected);
        }
    }

    #[test]
    fn noise_about_a_border_is_no_crossing() {
        let curve: Vec<(f64, f64)> = [0.97, 1.02, 0.99, 1.03, 0.98]
            .into_iter()
            .zip(1..)
            .map(|(s, n)| (f64::from(n), s))
            .collect();
        assert_eq!(texts(&curve, 4.0), ["slowdown 1 to 5"]);
        let linear: Vec<(f64, f64)> =
            [3.9, 4.1, 3.95, 4.15].into_iter().zip(1..).map(|(s, n)| (f64::from(n), s)).collect();
        assert_eq!(texts(&linear, 4.0), ["sublinear 1 to 4"]);
    }

    #[test]
    fn an_endpoint_is_saturated_where_its_queue_grows_for_good() {
        let curve = [(5.0, 20.0), (10.0, 90.0), (15.0, 30.0), (20.0, 95.0), (25.0, 500.0)];
        assert_eq!(saturation(&curve), Some(20.0));
        assert_eq!(saturation(&curve[..3]), None);
        assert_eq!(saturation(&[]), None);
    }

    #[test]
    fn the_top_of_a_speed_curve_has_a_beginning_and_perhaps_an_end() {
        let rising = [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)];
        assert_eq!(plateau(&rising), Some((3.0, None)));
        let falling = [(1.0, 10.0), (2.0, 30.0), (3.0, 29.0), (4.0, 20.0)];
        assert_eq!(plateau(&falling), Some((2.0, Some(4.0))));
        assert_eq!(plateau(&[]), None);
    }
}
