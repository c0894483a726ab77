/// The part of a rate that a node gets before its demand counts, by equal parts.
///
/// A node without demand needs something to admit its first events with, until the other nodes know
/// of them.
const EQUAL: f64 = 0.05;

/// The part of a common rate that one of several nodes may admit, 0..=1.
///
/// `rate`, and the demands of this node and of the others, are events a second. Demands that fit
/// the rate are met, and equal parts of the rest are added. Otherwise the rate is divided by
/// demand. The shares of all nodes have the sum 1 if they know the same demands; a node alone has
/// 1.
pub(crate) fn share_of(rate: f64, own: f64, others: &[f64]) -> f64 {
    let nodes = others.len() as f64 + 1.0;
    let equal = EQUAL * rate / nodes;
    let (own, sum) = (own + equal, own + others.iter().sum::<f64>() + nodes * equal);
    let rest = rate - sum;
    let admitted = if rest >= 0.0 { own + rest / nodes } else { own * rate / sum };
    (admitted / rate).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_that_fit_are_met_and_others_divide_the_rate() {
        assert_eq!(share_of(100.0, 0.0, &[]), 1.0);
        assert_eq!(share_of(100.0, 900.0, &[]), 1.0);
        let near = |share: f64, expected: f64| (share - expected).abs() < 0.02;
        assert!(near(share_of(100.0, 20.0, &[20.0, 20.0]), 1.0 / 3.0));
        assert!(near(share_of(100.0, 60.0, &[0.0]), 0.8));
        assert!(near(share_of(100.0, 300.0, &[100.0]), 0.75));
        // A node without demand can admit something.
        assert!(share_of(100.0, 0.0, &[1000.0]) > 0.001);
    }

    #[test]
    fn the_shares_of_all_nodes_are_one_together() {
        let demands = [0.0, 1.0, 40.0, 100.0, 5000.0];
        for rate in [0.01, 1.0, 100.0, 1e6] {
            for (one, two, three) in demands.iter().flat_map(|one| {
                let pairs = demands.iter().flat_map(|two| demands.iter().map(move |it| (two, it)));
                pairs.map(move |(two, three)| (*one, *two, *three))
            }) {
                let all = [one, two, three];
                let shares = [
                    share_of(rate, one, &[two, three]),
                    share_of(rate, two, &[one, three]),
                    share_of(rate, three, &[one, two]),
                ];
                assert!(
                    (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9,
                    "{rate} {all:?} {shares:?}"
                );
                let fits = all.iter().sum::<f64>() * 1.06 <= rate;
                let is_met = |(share, demand): (&f64, &f64)| share * rate >= *demand;
                assert!(shares.iter().all(|share| *share > 0.0), "{rate} {all:?} {shares:?}");
                assert!(!fits || shares.iter().zip(&all).all(is_met), "{rate} {all:?} {shares:?}");
            }
        }
    }
}
