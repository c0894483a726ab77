//! The state of TLS at front doors, at the API, and to backends.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_acme::OrderState;
use equipoise_api::wire::tls::{AutomaticStatus, BackendTlsStatus, CertificateStatus, TlsStatus};
use equipoise_session::config::{Certificate, CertificateFiles};
use equipoise_session::registry::{DoorTlsStatus, UpstreamTlsStatus};

/// The state of certificates outside the session level.
#[derive(Clone, Debug, Default)]
pub struct CertificateStates {
    /// Errors of certificates that could not be exchanged, by their files.
    pub problems: CertificateProblems,
    /// States of the names for which this process obtains certificates.
    pub names: BTreeMap<String, OrderState>,
}

/// Errors of certificates that could not be exchanged, by their files.
pub type CertificateProblems = HashMap<CertificateFiles, String>;

/// Converts the status of TLS of a listener.
pub fn tls(status: &DoorTlsStatus, states: &CertificateStates) -> TlsStatus {
    let certificate = |it: &Certificate| {
        let until = unix(it.valid_until());
        CertificateStatus {
            subject: it.subject().into(),
            names: it.names().to_vec(),
            key: it.kind().name().into(),
            chain: it.files().map(|files| files.chain.display().to_string()).unwrap_or_default(),
            valid_until_unix_seconds: until,
            days_left: days_until(until),
            problem: it.files().and_then(|files| states.problems.get(files).cloned()),
            not_stapled: it.staple_problem(SystemTime::now()),
        }
    };
    let names = status.tls.automatic().iter();
    TlsStatus {
        handshakes_total: status.handshakes,
        resumed_total: status.resumed,
        certificates: status.tls.certificates().iter().map(certificate).collect(),
        automatic: names.map(|it| automatic(&it.name, states.names.get(&it.name))).collect(),
    }
}

fn automatic(name: &str, status: Option<&OrderState>) -> AutomaticStatus {
    // A name of a reload is unknown for a moment.
    let status = status.cloned().unwrap_or_default();
    AutomaticStatus {
        name: name.into(),
        stage: status.stage.name().into(),
        failures: status.failures,
        last_error: status.last_error,
        next_try_unix_seconds: status.next_try.map(unix),
    }
}

/// Whole days until a time in seconds since 1970; negative after it.
fn days_until(until: u64) -> i64 {
    (until as i64 - unix(SystemTime::now()) as i64).div_euclid(86_400)
}

/// Converts the status of TLS to a backend.
pub(crate) fn backend_tls(status: &UpstreamTlsStatus) -> BackendTlsStatus {
    let until = status.valid_until.map(unix);
    BackendTlsStatus {
        handshakes_total: status.handshakes,
        resumed_total: status.resumed,
        valid_until_unix_seconds: until,
        days_left: until.map(days_until),
        failure: status.failure.clone(),
    }
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
