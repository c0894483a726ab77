//! TLS to a backend: its sessions for resumption, and what an operator learns of it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_basics::{OncePerMinute, lock};
use equipoise_health::CertificateSeen;
use equipoise_tls::{ClientTls, Fault, FaultKind, PeerTls, expiry};
use rustls::ClientConfig;

use crate::reason::Reason;

/// The encryption of sessions to the backends of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamTls {
    /// Both ends are nodes of the cluster. Of a peers' pool.
    Peer(PeerTls),
    /// The backend is a server that proves its name.
    Server(ClientTls),
}

impl UpstreamTls {
    /// TLS between nodes.
    pub(crate) fn peer(&self) -> Option<&PeerTls> {
        match self {
            UpstreamTls::Peer(tls) => Some(tls),
            UpstreamTls::Server(_) => None,
        }
    }
}

/// Interval between warnings that a backend's certificate expires.
const WARN_AGAIN_SECONDS: u64 = 86_400;

/// Time after which HTTP/2 is offered again to a backend that has chosen HTTP/1.1.
const OFFER_AGAIN_SECONDS: u64 = 600;

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The state of TLS to a backend.
#[derive(Debug, Default)]
pub struct BackendTls {
    /// The configuration with the sessions of this backend, and the TLS that it was made of.
    config: Mutex<Option<(ClientTls, Arc<ClientConfig>)>>,
    /// The certificate of the last full handshake.
    pub(crate) seen: CertificateSeen,
    /// When its expiry was logged, seconds since 1970.
    warned: AtomicU64,
    /// Until when a backend that has chosen HTTP/1.1 is not asked again, seconds since 1970.
    http1_until: AtomicU64,
    is_failing: AtomicBool,
    failure: Mutex<Failure>,
}

#[derive(Debug, Default)]
struct Failure {
    /// `None` after a handshake that succeeded.
    text: Option<String>,
    lines: OncePerMinute,
}

impl BackendTls {
    /// The configuration for handshakes by `tls`, with the sessions of this backend.
    pub(crate) fn config(&self, tls: &ClientTls) -> Arc<ClientConfig> {
        let mut kept = lock(&self.config);
        match &*kept {
            Some((of, config)) if of.is_same(tls) => Arc::clone(config),
            _ => {
                let config = tls.config_for_one();
                *kept = Some((tls.clone(), Arc::clone(&config)));
                config
            }
        }
    }

    /// Notes that the backend has chosen HTTP/1.1, though HTTP/2 was offered.
    pub(crate) fn chose_http1(&self) {
        self.http1_until.store(unix_seconds() + OFFER_AGAIN_SECONDS, Relaxed);
    }

    /// Whether it has chosen HTTP/1.1 lately.
    pub(crate) fn speaks_http1(&self) -> bool {
        self.http1_until.load(Relaxed) > unix_seconds()
    }

    /// Notes a handshake that succeeded.
    pub(crate) fn succeeded(&self) {
        if self.is_failing.swap(false, Relaxed) {
            lock(&self.failure).text = None;
        }
    }

    /// Notes a failure, and logs it if the last line about this backend is not recent.
    pub(crate) fn failed(&self, backend: impl FnOnce() -> String, error: &io::Error) {
        let mut failure = lock(&self.failure);
        let text = error.to_string();
        if failure.lines.may_write() {
            let backend = backend();
            tracing::warn!(backend, "backend {backend}: TLS failed: {text}");
        }
        failure.text = Some(text);
        self.is_failing.store(true, Relaxed);
    }

    /// Why the last handshake failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.is_failing.load(Relaxed).then(|| lock(&self.failure).text.clone()).flatten()
    }

    /// The end of the validity of the backend's certificate, once one was seen.
    pub fn valid_until(&self) -> Option<SystemTime> {
        self.seen.valid_until()
    }

    /// Warns once a day if the backend's certificate expires soon.
    pub(crate) fn warn_of_expiry(&self, backend: impl FnOnce() -> String) {
        let expires = |until| expiry(until, SystemTime::now());
        let Some(text) = self.valid_until().and_then(expires) else { return };
        let seconds = unix_seconds();
        let warned = self.warned.load(Relaxed);
        let is_due = seconds >= warned.saturating_add(WARN_AGAIN_SECONDS);
        if is_due && self.warned.compare_exchange(warned, seconds, Relaxed, Relaxed).is_ok() {
            let backend = backend();
            tracing::warn!(backend, "backend {backend}: its certificate {text}");
        }
    }
}

/// A handshake with a backend failed, or the backend ended it.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.text)]
struct HandshakeFailed(Fault);

/// Names the reason of an error of a handshake.
pub(crate) fn handshake_failed(error: &io::Error) -> io::Error {
    io::Error::other(HandshakeFailed(Fault::of_handshake(error)))
}

/// The reason to count, if TLS to a backend failed.
pub(crate) fn reason_of(error: &io::Error) -> Option<Reason> {
    let HandshakeFailed(fault) = error.get_ref()?.downcast_ref()?;
    Some(match fault.kind {
        FaultKind::Name => Reason::UpstreamTlsName,
        FaultKind::Expired => Reason::UpstreamTlsExpired,
        FaultKind::Issuer => Reason::UpstreamTlsIssuer,
        FaultKind::ClientCertificate | FaultKind::Other => Reason::UpstreamTls,
    })
}
