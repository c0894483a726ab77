use std::time::Duration;

/// One request that a backend finished: input of the learner.
///
/// Threads collect samples and pass them to the backend's learner every few milliseconds, in any
/// order. A request counts while it holds a permit. It returns the permit as soon as we no longer
/// wait for the backend: when only a slow client is left to take the response, or when the
/// connection became a tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time at which the permit was returned, on the clock of [`Load::now`].
    pub finished: Duration,
    /// Time for which the request held its permit. Waiting in our queue is not part of it.
    pub service_time: Duration,
    /// How the request ended.
    pub outcome: Outcome,
}

impl Sample {
    /// Time at which the request took its permit.
    pub fn started(&self) -> Duration {
        self.finished.saturating_sub(self.service_time)
    }
}

/// How a request ended, as the learner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend answered. A client error (4xx) is an answer.
    Answered,
    /// The backend failed or refused (5xx, reset, refused connection).
    Failed,
    /// No answer before the time-out.
    TimedOut,
    /// Its time says nothing about the backend: an upload that its client held up, a tunnel, or a
    /// client that left.
    NotMeasured,
}

/// State of one backend at a moment: input of the learner every few milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Time since the UNIX epoch. It must not go back.
    /// Several balancers find a shared backend's limit better when their clocks agree to a few
    /// milliseconds.
    pub now: Duration,
    /// Permits taken at this backend.
    pub in_flight: u32,
    /// Requests in the queue that wait for a permit of this backend.
    pub waiting: u32,
    /// Time for which the oldest of them has waited.
    pub oldest_wait: Duration,
}
