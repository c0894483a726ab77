use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Waits that double, from `first` up to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer.
    pub most: Duration,
}

impl Backoff {
    /// The wait after this number of failures in a row; none after none.
    pub fn after(self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
    }
}

/// The waits of one task that tries again and again.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    backoff: Backoff,
    failures: u32,
}

impl Waits {
    /// Waits of `first`, its double and so on, up to `most`.
    pub const fn new(first: Duration, most: Duration) -> Waits {
        Waits { backoff: Backoff { first, most }, failures: 0 }
    }

    /// The wait after one more failure.
    pub fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.after(self.failures)
    }

    /// Begins anew with the next failure.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_most() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
        let waits = [0, 1, 2, 3, 6, 7, 8, 99, u32::MAX].map(|n| backoff.after(n).as_secs());
        assert_eq!(waits, [0, 1, 2, 4, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn waits_begin_anew_after_a_success() {
        let mut waits = Waits::new(Duration::from_secs(1), Duration::from_secs(3));
        assert_eq!([(); 4].map(|()| waits.failed().as_secs()), [1, 2, 3, 3]);
        waits.succeeded();
        assert_eq!(waits.failed(), Duration::from_secs(1));
    }
}
