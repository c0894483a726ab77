use super::Outcome;

/// Requests that finished at one limit while others waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    /// Answers.
    pub(super) answers: f64,
    /// Sum of their service times, in seconds.
    pub(super) service: f64,
    /// Requests that failed or timed out, settling included.
    pub(super) failed: f64,
    /// Seconds in which the limit bound.
    pub(super) seconds: f64,
    /// Seconds in all, settling included.
    pub(super) elapsed: f64,
    /// Answers to let pass before the window begins.
    pub(super) settle: f64,
}

impl Window {
    pub(super) fn after(settle: f64) -> Window {
        Window { settle, ..Window::default() }
    }

    /// Answers a second.
    pub(super) fn rate(&self) -> f64 {
        self.answers / self.seconds.max(1e-9)
    }

    /// How much the rate grows from this window to one at a higher limit, as a logarithm; `step` is
    /// that of the limits.
    ///
    /// For one balancer the rate and the service time say the same (Little's law). If others before
    /// the same backend go up at the same time, only the service time shows that all of them
    /// together gain nothing.
    pub(super) fn growth(&self, higher: &Window, step: f64) -> f64 {
        let by_rate = (higher.rate() / self.rate()).ln();
        let mean = |one: &Window| one.service / one.answers.max(1.0);
        let by_time = step - (mean(higher) / mean(self)).ln();
        if by_time.is_finite() { by_rate.min(by_time) } else { by_rate }
    }

    /// Share of requests that failed.
    pub(super) fn failing(&self) -> f64 {
        self.failed / (self.answers + self.failed).max(1.0)
    }

    pub(super) fn plus(&self, other: &Window) -> Window {
        Window {
            answers: self.answers + other.answers,
            service: self.service + other.service,
            failed: self.failed + other.failed,
            seconds: self.seconds + other.seconds,
            elapsed: self.elapsed + other.elapsed,
            settle: 0.0,
        }
    }

    pub(super) fn shrink(&mut self, answers_max: f64) {
        if self.answers > answers_max {
            let share = answers_max / self.answers;
            self.answers *= share;
            self.service *= share;
            self.failed *= share;
            self.seconds *= share;
        }
    }
}

/// Mean and spread of service times at one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Times {
    pub(super) fn add(&mut self, seconds: f64) {
        self.count += 1.0;
        self.sum += seconds;
        self.squares += seconds * seconds;
    }

    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Squared coefficient of variation.
    pub(super) fn variation(&self) -> f64 {
        let mean = self.sum / self.count;
        (self.squares / self.count / (mean * mean) - 1.0).max(0.0)
    }
}

/// Requests that finished since the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Passed {
    pub(super) answers: f64,
    pub(super) service: f64,
    pub(super) finished: f64,
    pub(super) failed: f64,
    /// Seconds in flight of parked requests that finished.
    pub(super) parked: f64,
}

impl Passed {
    pub(super) fn add_parked(&mut self, seconds: f64) {
        self.finished += 1.0;
        self.parked += seconds;
    }

    pub(super) fn add(&mut self, outcome: Outcome, seconds: f64) {
        self.finished += 1.0;
        match outcome {
            Outcome::Answered => {
                self.answers += 1.0;
                self.service += seconds;
            }
            Outcome::Failed | Outcome::TimedOut => self.failed += 1.0,
            Outcome::NotMeasured => {}
        }
    }
}
