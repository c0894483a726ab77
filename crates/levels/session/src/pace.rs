//! Paces the bytes of a response.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

/// Least number of bytes that one write sends, so that a low rate does not make small packets.
const WRITE_MIN: f64 = 1024.0;

/// A bucket of bytes that fills at a constant rate, up to the bytes of a tenth of a second.
pub(crate) struct Pace {
    per_second: f64,
    left: f64,
    filled_at: Instant,
    wake: Pin<Box<Sleep>>,
}

impl Pace {
    /// A full bucket.
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Pace {
        let per_second = bytes_per_second.max(1) as f64;
        let left = depth(per_second);
        Pace { per_second, left, filled_at: now, wake: Box::pin(sleep_until(now.into())) }
    }

    /// Bytes that may be sent at `now`. If it is 0, the task is woken when it is more.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> u64 {
        let missing = self.missing(now);
        if missing <= 0.0 {
            return self.left as u64;
        }
        let after = Duration::from_secs_f64(missing / self.per_second);
        self.wake.as_mut().reset((now + after).into());
        if self.wake.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        0
    }

    /// Notes that bytes were sent, those beyond the rate included.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.left -= bytes as f64;
    }

    /// Fills the bucket up to `now`. Returns the bytes that are missing for the next write.
    fn missing(&mut self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.left = (self.left + since * self.per_second).min(depth(self.per_second));
        self.filled_at = now;
        (self.per_second / 100.0).max(WRITE_MIN) - self.left
    }
}

/// Bytes that may be sent at once after a rest.
fn depth(per_second: f64) -> f64 {
    (per_second / 10.0).max(4.0 * WRITE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn after_the_first_bytes_the_rate_holds() {
        let begun = Instant::now();
        for (rate, first) in [(1_000_000, 100_000), (2_000, 4096)] {
            let mut pace = Pace::new(rate, begun);
            let (mut sent, mut now) = (0, begun);
            for _ in 0..10_000 {
                let missing = pace.missing(now);
                if missing <= 0.0 {
                    sent += pace.left as u64;
                    pace.spend(pace.left as u64);
                }
                now += Duration::from_millis(1);
            }
            let expected = first + 10 * rate;
            assert!(sent <= expected && sent + 2 * 10_000 >= expected, "{sent} of {expected}");
        }
    }
}
