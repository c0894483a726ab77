//! How far a run is, and how long it will take.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line on the standard error stream, rewritten in place on a terminal.
pub(crate) struct Progress {
    start: Instant,
    cost: f64,
    cost_done: f64,
    in_place: bool,
}

impl Progress {
    /// `cost`: of all cases, in any unit.
    pub(crate) fn new(cost: f64) -> Progress {
        let in_place = std::io::stderr().is_terminal();
        Progress { start: Instant::now(), cost, cost_done: 0.0, in_place }
    }

    pub(crate) fn begin(&self, what: &str) {
        let gone = self.start.elapsed();
        let left = match left(gone, self.cost_done, self.cost) {
            Some(left) => format!("about {} left", short(left)),
            None => "time left not known yet".to_string(),
        };
        let part = 100.0 * self.cost_done / self.cost;
        let (before, after) = if self.in_place { ("\r\x1b[K", "") } else { ("", "\n") };
        eprint!("{before}{part:3.0} %  {} gone, {left}: {what}{after}", short(gone));
        // A line that does not show is no reason to stop measuring.
        let _ = std::io::stderr().flush();
    }

    pub(crate) fn done(&mut self, cost: f64) {
        self.cost_done += cost;
    }

    pub(crate) fn end(&self) {
        let before = if self.in_place { "\r\x1b[K" } else { "" };
        eprintln!("{before}100 %  {} gone", short(self.start.elapsed()));
    }
}

/// In proportion to what is done, once that says something.
fn left(gone: Duration, done: f64, all: f64) -> Option<Duration> {
    (done > 0.0).then(|| gone.mul_f64((all - done).max(0.0) / done))
}

fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 100 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_proportional_to_the_remaining_work() {
        let gone = Duration::from_secs(10);
        assert_eq!(left(gone, 0.0, 8.0), None);
        assert_eq!(left(gone, 2.0, 8.0), Some(Duration::from_secs(30)));
    }
}
