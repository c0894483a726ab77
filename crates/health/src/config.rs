//! What checks and ejection may be told: plain values, already validated.

use std::sync::Arc;
use std::time::Duration;

/// Active health checks of a pool's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// What a check does.
    pub check: HealthCheck,
    /// Between checks of one backend, jittered by a tenth.
    pub interval: Duration,
    /// For one check.
    pub timeout: Duration,
    /// Passed checks in a row that make a backend healthy.
    pub rise: u32,
    /// Failed checks in a row that make it unhealthy.
    pub fall: u32,
}

impl Default for ActiveHealth {
    fn default() -> Self {
        ActiveHealth {
            check: HealthCheck::Tcp,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }
}

/// What an active health check does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// A TCP connection opens.
    Tcp,
    /// A TCP connection opens, and the other end closes it after we have closed our half: a process does that, where the kernel alone
    /// opens connections for one that stands still. For servers that close then, as front doors for HTTP do; they need not
    /// be asked for anything.
    Attended {
        /// For closing, from when the connection is open.
        within: Duration,
    },
    /// `GET path` is answered with a status in the range.
    Http {
        /// Origin-form target, `/healthz`.
        path: Arc<str>,
        /// `Host`; the backend's address if none.
        host: Option<Arc<str>>,
        /// First and last accepted status.
        status: (u16, u16),
    },
}

/// Passive health: what the traffic itself shows.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveHealth {
    /// Failures in a row that eject a backend; 0: never. A failure is a connection that fails, a response that is missing or
    /// is not HTTP, or a status in `statuses`.
    pub failures: u32,
    /// First and last status of each range that counts as a failure. Empty: a response with any status is a success.
    pub statuses: Arc<[(u16, u16)]>,
    /// First ejection lasts this long; each further one twice the last.
    pub ejection: Duration,
    /// The longest ejection.
    pub ejection_max: Duration,
    /// Passive ejection never leaves less than this share of the pool's backends, `0.0..=1.0` ("panic threshold").
    pub panic_threshold: f64,
}

impl PassiveHealth {
    /// Whether a response with this status is a failure of the backend.
    pub fn counts(&self, status: u16) -> bool {
        self.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}

impl Default for PassiveHealth {
    fn default() -> Self {
        PassiveHealth {
            failures: 5,
            statuses: Arc::default(),
            ejection: Duration::from_secs(10),
            ejection_max: Duration::from_secs(300),
            panic_threshold: 0.5,
        }
    }
}
