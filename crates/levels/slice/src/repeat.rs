//! When a message without an answer is sent again.
//!
//! A message is lost alone on a good network: it is sent again soon. A peer without CPU time
//! answers late, and each further copy makes it later: so copies become rarer.

use std::time::Duration;

/// Longest wait, in waits of [`crate::Config::resend`].
const LONGEST: u32 = 50;

/// The repetitions of a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Repeat {
    /// When it was first sent.
    begun: Duration,
    /// When it was last sent.
    said: Duration,
    /// Shortest wait.
    least: Duration,
}

impl Repeat {
    /// A message that is sent now for the first time.
    pub(crate) fn new(now: Duration) -> Self {
        Self { begun: now, said: now, least: Duration::ZERO }
    }

    /// A new message is sent.
    pub(crate) fn first(&mut self, now: Duration) {
        (self.begun, self.said) = (now, now);
    }

    /// The message is sent again.
    pub(crate) fn again(&mut self, now: Duration) {
        self.said = now;
    }

    /// Its answer is not expected sooner than this.
    pub(crate) fn wait_at_least(&mut self, least: Duration) {
        self.least = least;
    }

    /// The answer has come: copies of the next message wait for twice as long.
    pub(crate) fn answered(&mut self, now: Duration) {
        self.least = 2 * now.saturating_sub(self.begun);
    }

    /// Whether to send the message again: after `resend`, and then each time when as long has
    /// passed again as since it was first sent.
    pub(crate) fn is_due(&self, now: Duration, resend: Duration) -> bool {
        let wait = self.said.saturating_sub(self.begun).max(self.least);
        now.saturating_sub(self.said) >= wait.clamp(resend, LONGEST * resend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which a message is sent that is never answered, in milliseconds.
    fn sent(mut repeat: Repeat, from: u64, through: u64) -> Vec<u64> {
        let resend = Duration::from_millis(20);
        let mut times = Vec::new();
        for time in from..=through {
            let now = Duration::from_millis(time);
            if repeat.is_due(now, resend) {
                repeat.again(now);
                times.push(time);
            }
        }
        times
    }

    #[test]
    fn copies_of_a_message_without_an_answer_become_rarer() {
        let times = sent(Repeat::new(Duration::ZERO), 0, 5000);
        assert_eq!(times, [20, 40, 80, 160, 320, 640, 1280, 2280, 3280, 4280]);
    }

    #[test]
    fn a_peer_that_answers_late_gets_no_copy_before_that() {
        let mut repeat = Repeat::new(Duration::ZERO);
        let at = Duration::from_millis;
        repeat.answered(at(100));
        repeat.first(at(100));
        assert_eq!(sent(repeat, 100, 1000), [300, 500, 900]);
    }
}
