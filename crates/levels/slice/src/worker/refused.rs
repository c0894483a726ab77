//! Refusal because of another process under the same name.

use std::time::Duration;

use crate::ids::Process;
use crate::worker::Worker;

/// Why a worker is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The process that works under its name.
    pub holder: Process,
    /// When it was first refused.
    pub since: Duration,
    /// Time between the other's last claims and the last refusal.
    pub heard: Duration,
    /// When the other was last known to live: when a refusal showed newer claims than the refusal
    /// before. Recent claims alone do not show it: a refusal may be old on arrival, or the last for
    /// a long time.
    pub lives: Option<Duration>,
}

impl<T: Clone> Worker<T> {
    /// The refusal, if another process works under this worker's name. A process that has just
    /// ended may seem to live until its lease is over.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    pub(super) fn on_refuse(&mut self, now: Duration, last: u64, holder: Process, heard: Duration) {
        // It was admitted, and lost its place while it could not reach the controller.
        if self.claims.was_granted() {
            self.expelled(now, last);
        }
        let before = self.refused.take().filter(|before| before.holder == holder);
        let since = before.as_ref().map_or(now, |before| before.since);
        let lives = before.and_then(|before| match heard < before.heard {
            true => Some(now),
            false => before.lives,
        });
        self.refused = Some(Refused { holder, since, heard, lives });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ids::{Incarnation, WorkerId};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The value of `lives` after refusals, each with its arrival and the age of the holder's
    /// claims.
    fn lives(refusals: &[(u64, u64)]) -> Option<Duration> {
        let incarnation = Incarnation { worker: WorkerId(1), number: 2 };
        let mut worker: Worker<u8> = Worker::new(incarnation, Config::default());
        for (at, heard) in refusals {
            worker.on_refuse(ms(*at), 1, Process { key: 7, ..Process::default() }, ms(*heard));
        }
        worker.refused().and_then(|refused| refused.lives)
    }

    #[test]
    fn a_name_holder_is_alive_only_if_refusals_show_newer_claims() {
        assert_eq!(lives(&[(0, 10)]), None);
        // From a holder that sends no claims any more, however late the refusals arrive.
        assert_eq!(lives(&[(0, 10), (50, 60), (9000, 110), (9000, 160)]), None);
        assert_eq!(lives(&[(0, 10), (50, 12), (100, 8)]), Some(ms(100)));
        assert_eq!(lives(&[(0, 10), (50, 2), (100, 52)]), Some(ms(50)));
    }

    #[test]
    fn a_change_of_holder_resets_the_refusal() {
        let incarnation = Incarnation { worker: WorkerId(1), number: 2 };
        let mut worker: Worker<u8> = Worker::new(incarnation, Config::default());
        for (at, key, heard) in [(0, 7, 10), (50, 7, 2), (100, 8, 1)] {
            let holder = Process { key, ..Process::default() };
            worker.on_refuse(ms(at), 1, holder, ms(heard));
        }
        let refused = worker.refused().unwrap();
        assert_eq!((refused.since, refused.lives), (ms(100), None));
    }
}
