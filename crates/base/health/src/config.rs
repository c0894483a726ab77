//! Validated configuration of health checks and ejection.

use std::sync::Arc;
use std::time::Duration;

use equipoise_tls::ClientTls;

/// Active health checks of a pool's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// Kind of check.
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
            check: HealthCheck::Tcp,
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

/// Kind of active health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// Passes if a TCP connection opens, and with TLS if its handshake succeeds.
    Tcp,
    /// Passes if a TCP connection opens and the peer closes it after we have closed our half. This
    /// shows that the process runs: the kernel accepts connections for a hung process, but does not
    /// close them. For servers that close in this case, such as front doors for HTTP. The check
    /// sends no data.
    Attended {
        /// Timeout of the close, from the opened connection.
        within: Duration,
    },
    /// Passes if the answer to an HTTP request meets the criteria.
    Http(HttpCheck),
    /// Passes if gRPC's health service (grpc.health.v1), asked over HTTP/2 by prior knowledge, says
    /// that a service serves.
    Grpc {
        /// The service's name, at most 127 bytes long; "" stands for the whole server.
        service: Arc<str>,
    },
}

/// Request of an HTTP check, and the criteria of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// Whether the request is sent over HTTP/2, by prior knowledge.
    pub http2: bool,
    /// Request method.
    pub method: CheckMethod,
    /// Request target in origin form, such as `/healthz`.
    pub path: Arc<str>,
    /// Value of the `Host` header; `None`: the checked address.
    pub host: Option<Arc<str>>,
    /// First and last status of each accepted range.
    pub statuses: Arc<[(u16, u16)]>,
    /// Text that the first 32 KB of the body must contain; `None`: any body passes.
    pub body: Option<Arc<str>>,
}

impl HttpCheck {
    /// Makes a check `GET path` that accepts statuses 200 to 299.
    pub fn get(path: &str) -> HttpCheck {
        HttpCheck {
            http2: false,
            method: CheckMethod::Get,
            path: path.into(),
            host: None,
            statuses: [(200, 299)].into(),
            body: None,
        }
    }
}

/// Request methods of checks: safe methods, and POST for applications that require it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    /// GET.
    #[default]
    Get,
    /// HEAD; the response has no body.
    Head,
    /// OPTIONS.
    Options,
    /// POST, with an empty body.
    Post,
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
