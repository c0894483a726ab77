//! What clients bring by where they are: from the levels that see them to the DNS level, over the cluster if there is one.

use std::collections::HashMap;
use std::time::Duration;

use equipoise_controller::{SOURCES_REPORTED_MAX, SourceRates, largest};
use equipoise_core::SourcePrefix;

/// How often the work of clients is looked at.
pub(crate) const LEARN_PERIOD: Duration = Duration::from_secs(2);

/// What is not seen any more counts half after this long.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Prefixes that bring less are forgotten, pieces of work a second.
const LEAST: f64 = 0.05;

/// Prefixes that are remembered: those that bring most.
const PREFIXES_MAX: usize = 4096;

/// What this node's clients bring, averaged over some seconds, since it is a sample.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<SourcePrefix, f64>);

impl Seen {
    /// Takes the pieces of work of the time `over`.
    pub(crate) fn take(&mut self, work: &HashMap<SourcePrefix, u64>, over: Duration) {
        let seconds = over.as_secs_f64().max(1e-3);
        let kept = 0.5f64.powf(seconds / HALF_LIFE.as_secs_f64());
        for (prefix, pieces) in work {
            let rate = *pieces as f64 / seconds;
            // Who is new is believed at once.
            let known = self.0.entry(*prefix).or_insert(rate);
            *known = *known * kept + rate * (1.0 - kept);
        }
        self.0.retain(|prefix, rate| {
            if !work.contains_key(prefix) {
                *rate *= kept;
            }
            *rate >= LEAST
        });
        if self.0.len() > PREFIXES_MAX {
            self.0 = largest(self.0.drain(), PREFIXES_MAX).into_iter().collect();
        }
    }

    /// Those that bring most, for the controllers.
    pub(crate) fn told(&self) -> SourceRates {
        largest(self.0.iter().map(|(prefix, rate)| (*prefix, *rate)), SOURCES_REPORTED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_averaged_and_fade() {
        let prefix = SourcePrefix::of([192, 0, 2, 1].into());
        let mut seen = Seen::default();
        let (nothing, some) = (HashMap::new(), HashMap::from([(prefix, 320)]));
        seen.take(&some, Duration::from_secs(2));
        assert_eq!(seen.told()[&prefix], 160.0);
        seen.take(&nothing, HALF_LIFE);
        assert_eq!(seen.told()[&prefix], 80.0);
        seen.take(&some, HALF_LIFE);
        assert_eq!(seen.told()[&prefix], 56.0);
        seen.take(&nothing, HALF_LIFE * 12);
        assert!(seen.told().is_empty());
    }
}
