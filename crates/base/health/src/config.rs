//! Validated configuration of health checks and ejection.

use std::sync::Arc;
use std::time::Duration;

use equipoise_tls::ClientTls;

use crate::checks::{HealthCheck, TcpCheck};

/// Active health checks of a pool's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// The check, by its type.
    pub check: HealthCheck,
    /// Port to check; `None`: the backend's own. No effect on a unix socket.
    pub port: Option<u16>,
    /// Time between checks of one backend; varies by up to a tenth.
    pub interval: Duration,
    /// Timeout of one check.
    pub timeout: Duration,
    /// Number of consecutive passed checks that make a backend healthy.
    pub rise: u32,
    /// Number of consecutive failed checks that make a backend unhealthy.
    pub fall: u32,
    /// TLS of the check; `None`: it is not encrypted.
    pub tls: Option<ClientTls>,
    /// Bytes at the start of each check, before TLS: a PROXY header without a client. Empty: none.
    pub preamble: &'static [u8],
    /// Checks one address of each family of a host name, because packets to a VIP go to an address
    /// of their family. The check passes if one family passes, and takes as long as the slower one.
    pub every_family: bool,
    /// Closes the connections of a backend that becomes unhealthy.
    pub closes: bool,
}

impl Default for ActiveHealth {
    fn default() -> Self {
        ActiveHealth {
            check: HealthCheck::Tcp(TcpCheck),
            port: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            tls: None,
            preamble: &[],
            every_family: false,
            closes: false,
        }
    }
}

/// Passive health: ejection of backends by the results of real requests.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveHealth {
    /// Number of consecutive failures that eject a backend; 0: never. A failure is a connection
    /// error, a missing or malformed response, or a status in `statuses`.
    pub failures: u32,
    /// First and last status of each range that counts as a failure. Empty: every status is a
    /// success.
    pub statuses: Arc<[(u16, u16)]>,
    /// Duration of the first ejection; each further one lasts twice as long as the previous one.
    pub ejection: Duration,
    /// Maximum duration of an ejection.
    pub ejection_max: Duration,
    /// Minimum fraction of the pool's backends that passive ejection leaves in use, `0.0..=1.0`
    /// ("panic threshold").
    pub panic_threshold: f64,
}

impl PassiveHealth {
    /// Whether a response with this status counts as a failure.
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
