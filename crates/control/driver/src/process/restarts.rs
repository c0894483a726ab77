use std::time::Duration;

use crate::Backoff;

/// Decides when a process that ended is started again. Pure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restarts {
    backoff: Backoff,
    well_after: Duration,
    loop_after: u32,
    in_a_row: u32,
}

/// The next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) wait: Duration,
    pub(super) is_loop: bool,
}

impl Restarts {
    pub(super) fn new(backoff: Backoff, well_after: Duration, loop_after: u32) -> Restarts {
        Restarts { backoff, well_after, loop_after, in_a_row: 0 }
    }

    /// The process ended after it ran for `ran`.
    pub(super) fn ended(&mut self, ran: Duration) -> Next {
        if ran >= self.well_after {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let wait = self.backoff.after(self.in_a_row);
        Next { wait, is_loop: self.in_a_row >= self.loop_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_it_ran_well() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(4) };
        let mut restarts = Restarts::new(backoff, Duration::from_secs(10), 3);
        // Run time in seconds, wait in seconds, whether it is a loop.
        let rows = [
            (0, 1, false),
            (9, 2, false),
            (0, 4, true),
            (1, 4, true),
            (10, 1, false),
            (0, 2, false),
            (99, 1, false),
        ];
        for (ran, wait, is_loop) in rows {
            let next = restarts.ended(Duration::from_secs(ran));
            assert_eq!(next, Next { wait: Duration::from_secs(wait), is_loop }, "after {ran} s");
        }
    }
}
