use super::Outcome;
use super::learner::{FEW, WINDOW_SECONDS_MAX};

/// Share of the time in flight for which finished requests account at least, but for noise.
const ACCOUNTED: f64 = 0.7;
/// Answers from which on a rate is more than a first impression.
const MEASURED: f64 = 20.0;

/// Requests that finished at one limit while others waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    /// Answers.
    pub(super) answers: f64,
    /// Sum of their service times, in seconds.
    pub(super) service: f64,
    /// Sum of the squares of these times.
    pub(super) squares: f64,
    /// Seconds for which all that finished had been in flight.
    pub(super) spent: f64,
    /// Seconds in flight of all requests together.
    pub(super) area: f64,
    /// Requests that failed or timed out, settling included.
    pub(super) failed: f64,
    /// Seconds in which the limit bound.
    pub(super) seconds: f64,
    /// Seconds in all, settling included.
    pub(super) elapsed: f64,
    /// Requests that finished, settling included, but not while more was in flight than the limit.
    pub(super) finished: f64,
    /// Seconds in which requests waited, settling included, but not while more was in flight than
    /// the limit.
    pub(super) waited: f64,
    /// Answers to let pass before the window begins.
    pub(super) settle: f64,
    /// Seconds to let pass before the window begins.
    pub(super) settle_seconds: f64,
}

impl Window {
    pub(super) fn after(settle: f64, settle_seconds: f64) -> Window {
        Window { settle, settle_seconds, ..Window::default() }
    }

    /// Requests that started at another limit are still in flight.
    pub(super) fn settles(&self) -> bool {
        self.settle > 0.0 || self.elapsed < self.settle_seconds
    }

    /// Its rate is more than a first impression.
    pub(super) fn is_measured(&self) -> bool {
        self.answers >= MEASURED || (self.answers >= FEW && self.seconds >= WINDOW_SECONDS_MAX)
    }

    /// Answers a second.
    pub(super) fn rate(&self) -> f64 {
        self.answers / self.seconds.max(1e-9)
    }

    /// Mean service time of the answers, in seconds.
    pub(super) fn time(&self) -> f64 {
        self.service / self.answers.max(1.0)
    }

    /// How much the rate grows from this window to one at a higher limit, as a logarithm; `step` is
    /// that of the limits. It is the mean of what the rate and what the service time say. Just
    /// after a rise the rate says too little and the service time too much.
    pub(super) fn change(&self, higher: &Window, step: f64) -> f64 {
        let by_rate = (higher.rate() / self.rate()).ln();
        let by_time = step - (higher.time() / self.time()).ln();
        0.5 * (by_rate + by_time)
    }

    /// Standard deviation of the logarithm of the quotient of two windows' rates, by the spread of
    /// the service times in these windows.
    pub(super) fn noise(&self, other: &Window) -> f64 {
        let answers = 1.0 / self.answers.max(1.0) + 1.0 / other.answers.max(1.0);
        (self.variation(other) * answers).sqrt()
    }

    /// Squared coefficient of variation of the service times, over two windows.
    pub(super) fn variation(&self, other: &Window) -> f64 {
        // Few times say little of their spread, so it is pulled towards that of exponential ones.
        const PRIOR: f64 = 8.0;
        let spread = |one: &Window| match one.time() {
            mean if mean > 0.0 => (one.squares / (mean * mean) - one.answers).max(0.0),
            _ => 0.0,
        };
        let answers = self.answers + other.answers + PRIOR;
        (spread(self) + spread(other) + PRIOR) / answers
    }

    /// Answers a second, for a window after a rise of the limit.
    ///
    /// Then short requests finish first while long ones accumulate, so that the rate seems to grow
    /// for as long as the long ones take. By Little's law, the requests that finish account for the
    /// time spent in flight; where they account for too little of it the rate counts for less.
    pub(super) fn risen_rate(&self) -> f64 {
        let accounted = if self.area > 0.0 { self.spent / self.area } else { 1.0 };
        self.rate() * (accounted / ACCOUNTED).min(1.0)
    }

    /// How much the rate grows from this window to one at a higher limit, as a logarithm; `step` is
    /// that of the limits.
    ///
    /// For one balancer the rate and the service time say the same (Little's law). If others before
    /// the same backend go up at the same time, only the service time shows that all of them
    /// together gain nothing.
    pub(super) fn growth(&self, higher: &Window, step: f64) -> f64 {
        let by_rate = (higher.risen_rate() / self.rate()).ln();
        let mean = |one: &Window| one.service / one.answers.max(1.0);
        let by_time = step - (mean(higher) / mean(self)).ln();
        if by_time.is_finite() { by_rate.min(by_time) } else { by_rate }
    }

    /// Far fewer requests finished since the limit rose than at a known rate. `variation` is the
    /// squared coefficient of variation of their service times.
    ///
    /// Settling counts, too: what was in flight before finishes as fast as before, or faster.
    pub(super) fn collapsed(&self, rate: f64, variation: f64) -> bool {
        let expected = rate * self.waited;
        self.finished < 0.5 * expected
            && expected - self.finished > 4.0 * (variation.max(1.0) * expected).sqrt()
    }

    /// Share of requests that failed.
    pub(super) fn failing(&self) -> f64 {
        self.failed / (self.answers + self.failed).max(1.0)
    }

    pub(super) fn plus(&self, other: &Window) -> Window {
        Window {
            answers: self.answers + other.answers,
            service: self.service + other.service,
            squares: self.squares + other.squares,
            spent: self.spent + other.spent,
            area: self.area + other.area,
            failed: self.failed + other.failed,
            seconds: self.seconds + other.seconds,
            elapsed: self.elapsed + other.elapsed,
            finished: self.finished + other.finished,
            waited: self.waited + other.waited,
            settle: 0.0,
            settle_seconds: 0.0,
        }
    }

    pub(super) fn shrink(&mut self, answers_max: f64) {
        if self.answers > answers_max {
            let share = answers_max / self.answers;
            self.answers *= share;
            self.service *= share;
            self.squares *= share;
            self.spent *= share;
            self.area *= share;
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
    pub(super) fn add(&mut self, passed: &Passed) {
        self.count += passed.answers + passed.failed;
        self.sum += passed.measured;
        self.squares += passed.squares;
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
    /// Seconds in flight of those that were answered or failed.
    pub(super) measured: f64,
    /// Sum of the squares of these times.
    pub(super) squares: f64,
    /// Seconds for which all that finished had been in flight, without parked ones.
    pub(super) spent: f64,
    pub(super) finished: f64,
    pub(super) failed: f64,
    /// Seconds in flight of parked requests that finished.
    pub(super) parked: f64,
}

impl Passed {
    pub(super) fn plus(&mut self, other: &Passed) {
        self.answers += other.answers;
        self.service += other.service;
        self.measured += other.measured;
        self.squares += other.squares;
        self.spent += other.spent;
        self.finished += other.finished;
        self.failed += other.failed;
        self.parked += other.parked;
    }

    pub(super) fn add_parked(&mut self, seconds: f64) {
        self.finished += 1.0;
        self.parked += seconds;
    }

    pub(super) fn add(&mut self, outcome: Outcome, seconds: f64) {
        self.finished += 1.0;
        self.spent += seconds;
        if outcome != Outcome::NotMeasured {
            self.measured += seconds;
            self.squares += seconds * seconds;
        }
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
