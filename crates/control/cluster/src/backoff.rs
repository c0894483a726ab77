use std::time::Duration;

use equipoise_basics::Waits;
use rand::{Rng, RngExt};

/// Pauses that double up to a limit. Each is random between half and all of its value, so that
/// nodes which lost the same controller do not return together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff(Waits);

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff(Waits::new(first, longest))
    }

    /// The length of the next pause.
    pub(crate) fn pause(&mut self, rng: &mut impl Rng) -> Duration {
        self.0.failed().mul_f64(rng.random_range(0.5..=1.0))
    }

    /// Begins with the shortest pause again.
    pub(crate) fn reset(&mut self) {
        self.0.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn pauses_double_with_jitter_to_a_bound_and_begin_anew() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        for whole_ms in [100, 200, 300, 300] {
            let pause = backoff.pause(&mut rng).as_millis();
            assert!((whole_ms / 2..=whole_ms).contains(&pause), "{pause} of {whole_ms}");
        }
        backoff.reset();
        assert!(backoff.pause(&mut rng).as_millis() <= 100);
    }
}
