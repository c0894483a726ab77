//! Tallies of shared backends from other balancers, which controllers send as answers to reports.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_controller::Tallies;
use tokio::time::Instant;

use crate::ControllerAddress;

/// The newest answer of each controller.
#[derive(Clone, Debug, Default)]
pub struct HeardTallies {
    answers: BTreeMap<ControllerAddress, (Instant, Tallies)>,
}

impl HeardTallies {
    pub(super) fn hear(&mut self, from: &ControllerAddress, at: Instant, tallies: Tallies) {
        self.answers.insert(from.clone(), (at, tallies));
    }

    /// Whether a controller has answered within `age_max`.
    pub fn is_recent(&self, now: Instant, age_max: Duration) -> bool {
        self.answers.values().any(|(at, _)| now.saturating_duration_since(*at) <= age_max)
    }

    /// The newest tally of each balancer, without answers that are older than `age_max`.
    ///
    /// Controllers differ if a report has reached only one of them. Of two tallies of a balancer,
    /// the newer one counts more requests.
    pub fn newest(&self, now: Instant, age_max: Duration) -> Tallies {
        let is_new = |at: Instant| now.saturating_duration_since(at) <= age_max;
        let answers = self.answers.values().filter(|(at, _)| is_new(*at));
        let mut all = Tallies::new();
        for (backend, tallies) in answers.flat_map(|(_, tallies)| tallies) {
            let known = all.entry(backend.clone()).or_default();
            for tally in tallies {
                match known.iter_mut().find(|one| one.balancer == tally.balancer) {
                    Some(one) if one.finished < tally.finished => *one = *tally,
                    Some(_) => {}
                    None => known.push(*tally),
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use equipoise_core::concurrency::Tally;

    use super::*;

    #[test]
    fn of_each_balancer_the_newest_tally_counts_and_old_answers_count_as_none() {
        let tally = |balancer, finished| Tally { balancer, finished, ..Tally::default() };
        let answer = |tallies: &[Tally]| Tallies::from([("b".to_string(), tallies.to_vec())]);
        let [one, other] =
            ["c1:7700", "c2:7700"].map(|it| it.parse::<ControllerAddress>().unwrap());
        let (mut heard, begin, second) =
            (HeardTallies::default(), Instant::now(), Duration::from_secs(1));
        heard.hear(&one, begin, answer(&[tally(1, 10.0), tally(2, 5.0)]));
        heard.hear(&other, begin + second, answer(&[tally(1, 12.0)]));
        let newest = |after: u32| heard.newest(begin + after * second, 3 * second);
        assert_eq!(newest(1)["b"], [tally(1, 12.0), tally(2, 5.0)]);
        assert_eq!(newest(4)["b"], [tally(1, 12.0)]);
        assert!(newest(5).is_empty());
        let is_recent = |after: u32| heard.is_recent(begin + after * second, 3 * second);
        assert!(is_recent(4) && !is_recent(5));
    }
}
