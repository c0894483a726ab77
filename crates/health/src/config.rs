//! What checks and ejection may be told: plain values, already validated.

use std::sync::Arc;
use std::time::Duration;

/// Active health checks of a pool's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// What a check does.
    pub check: HealthCheck,
    /// The port that is checked; the backend's own if none. Without effect on a unix socket.
    pub port: Option<u16>,
    /// Between checks of one backend, jittered by a tenth.
    pub interval: Duration,
    /// For one check.
    pub timeout: Duration,
    /// Passed checks in a row that make a backend healthy.
    pub rise: u32,
    /// Failed checks in a row that make it unhealthy.
    pub fall: u32,
    /// Of a backend with a host name, checks an address of each family: packets of VIPs go to one of their family. A
    /// check then passes if one does, and takes as long as the slower.
    pub every_family: bool,
}

impl Default for ActiveHealth {
    fn default() -> Self {
        ActiveHealth {
            check: HealthCheck::Tcp,
            port: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            every_family: false,
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
    /// An HTTP request is answered as it should be.
    Http(HttpCheck),
}

/// The request of an HTTP check, and the responses that pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// The request's method.
    pub method: CheckMethod,
    /// Origin-form target, `/healthz`.
    pub path: Arc<str>,
    /// `Host`; the checked address if none.
    pub host: Option<Arc<str>>,
    /// First and last status of each accepted range.
    pub statuses: Arc<[(u16, u16)]>,
    /// A text that the first 32 KB of the body contain; any body passes if none.
    pub body: Option<Arc<str>>,
}

impl HttpCheck {
    /// `GET path`, answered with a status of 200 to 299.
    pub fn get(path: &str) -> HttpCheck {
        HttpCheck {
            method: CheckMethod::Get,
            path: path.into(),
            host: None,
            statuses: [(200, 299)].into(),
            body: None,
        }
    }
}

/// Methods of checks: those that should change nothing at a backend, and POST for applications that ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    /// GET.
    #[default]
    Get,
    /// HEAD: the response has no body.
    Head,
    /// OPTIONS.
    Options,
    /// POST, with an empty body.
    Post,
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
