use std::time::Duration;

/// Number of [`Now::ticks`] in a second.
pub(crate) const TICKS_PER_SECOND: u64 = 100_000;

/// The time that the message path uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Seconds since 1970, for cookies.
    pub unix_seconds: u32,
    /// Monotonic clock in units of 10 µs, for rates and loads.
    pub ticks: u64,
}

impl Now {
    /// Makes it from the time since 1970 and a monotonic time with any origin.
    pub fn new(unix: Duration, monotonous: Duration) -> Now {
        let ticks =
            monotonous.as_secs() * TICKS_PER_SECOND + u64::from(monotonous.subsec_nanos()) / 10_000;
        Now { unix_seconds: unix.as_secs() as u32, ticks }
    }
}
