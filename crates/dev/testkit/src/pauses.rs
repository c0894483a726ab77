//! Tests in which a short timeout must not expire because the machine is busy.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Gaps between two looks at the clock from which on a failure may be the machine's.
const PAUSE: Duration = Duration::from_millis(100);
/// Attempts after which a failure counts, whatever the machine did.
const ATTEMPTS: usize = 10;

/// Runs a test. If it fails while the machine does not run this process for a noticeable time, it
/// begins again.
///
/// # Panics
/// As the test does.
pub fn undisturbed(mut test: impl FnMut()) {
    for attempt in 1.. {
        let (ends, longest) = (AtomicBool::new(false), AtomicU64::new(0));
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = Instant::now();
                while !ends.load(SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                    longest.fetch_max(last.elapsed().as_millis() as u64, SeqCst);
                    last = Instant::now();
                }
            });
            let result = catch_unwind(AssertUnwindSafe(&mut test));
            ends.store(true, SeqCst);
            result
        });
        let pause = Duration::from_millis(longest.load(SeqCst));
        match result {
            Ok(()) => return,
            Err(_) if pause >= PAUSE && attempt < ATTEMPTS => {
                println!("attempt {attempt} failed, with a pause of {pause:?}");
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_passes_runs_once_and_one_that_always_fails_fails() {
        let mut attempts = 0;
        undisturbed(|| attempts += 1);
        assert_eq!(attempts, 1);
        let failing = catch_unwind(|| undisturbed(|| panic!("it fails on any machine")));
        assert!(failing.is_err());
    }
}
