use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Waits that double after every failure, from `first` up to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

impl Backoff {
    /// The wait after `failures` failures in a row; zero after none.
    pub fn after(self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
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
}
