//! TLS to the backends of a pool, and its certificate files.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use equipoise_session::config::{Protocol, Upstream};
use equipoise_tls::{CertificateFiles, ClientOptions, ClientTls, Part, Protocols, Trust};
use rustls::pki_types::ServerName;

use super::door_tls::warn_of_times;
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Pool, PoolTls};
use super::users::PoolUsers;
use super::view::View;
use super::{FileKind, Surroundings};

/// The system's authorities, read once for each file.
#[derive(Default)]
pub(super) struct System(OnceCell<Trust>);

impl System {
    fn trust(&self) -> &Trust {
        self.0.get_or_init(|| Trust::Authorities(rustls_native_certs::load_native_certs().certs))
    }
}

/// The `tls` of a pool. `None`: it has none, or one with errors.
pub(super) fn of_pool(
    pool: View<'_, Pool>,
    users: &PoolUsers<'_>,
    system: &System,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ClientTls> {
    let tls = pool.get(Pool::TLS)?;
    let trust = trust(tls, system, around, findings);
    let certificate = match tls.get(PoolTls::CERTIFICATE) {
        Some(chain) => Some(certificate(chain, tls, around, findings)?),
        None => None,
    };
    let server_name =
        tls.get(PoolTls::SERVER_NAME).map(|name| ServerName::try_from(name.to_string()));
    let options = ClientOptions {
        trust: trust?,
        certificate,
        profile: tls.get(PoolTls::PROFILE),
        server_name: server_name.transpose().ok()?,
        protocols: protocols(pool, users),
    };
    match ClientTls::new(options) {
        Ok(tls) => Some(tls),
        Err(error) => {
            let option =
                if tls.given(PoolTls::CA) { PoolTls::CA.any() } else { PoolTls::VERIFY.any() };
            let text = match tls.get(PoolTls::CA) {
                Some(path) => format!("\"{path}\" has {error}"),
                None => format!("the system's authorities cannot be used: {error}; state `ca`"),
            };
            findings.error(tls.at(option), &tls.path_of(option), text);
            None
        }
    }
}

/// The application protocols that the pool offers its backends.
fn protocols(pool: View<'_, Pool>, users: &PoolUsers<'_>) -> Protocols {
    match pool.get(Pool::UPSTREAM) {
        Upstream::Http2 => Protocols::OnlyHttp2,
        _ if users.are_http() => Protocols::Http1,
        _ => Protocols::Any,
    }
}

fn trust(
    tls: View<'_, PoolTls>,
    system: &System,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Trust> {
    if !tls.get(PoolTls::VERIFY) {
        return Some(Trust::Anyone);
    }
    let Some(path) = tls.get(PoolTls::CA) else {
        let trust = system.trust();
        if matches!(trust, Trust::Authorities(all) if all.is_empty()) {
            let text = "this system has no authorities, so no backend can be verified; accepted: a \
                        file with authorities (or the package ca-certificates)";
            findings.error(tls.start(), &tls.path_of(PoolTls::CA), text.to_string());
            return None;
        }
        return Some(trust.clone());
    };
    let wrong = match (around.read)(Path::new(path), FileKind::Certificates) {
        Err(error) => format!("\"{path}\" cannot be read: {error}; accepted: a file of PEM"),
        Ok(text) => match Trust::from_pem(&text) {
            Ok(trust) => return Some(trust),
            Err(error) => format!("\"{path}\" has {error}"),
        },
    };
    findings.error(tls.at(PoolTls::CA), &tls.path_of(PoolTls::CA), wrong);
    None
}

fn certificate(
    chain: &str,
    tls: View<'_, PoolTls>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<equipoise_tls::Certificate> {
    let files = CertificateFiles {
        chain: chain.into(),
        key: tls.get(PoolTls::KEY).map(PathBuf::from),
        ocsp: None,
    };
    let key_option = if files.key.is_some() { PoolTls::KEY } else { PoolTls::CERTIFICATE };
    match files.load(|path| (around.read)(path, FileKind::Certificates)) {
        Ok(certificate) => {
            let secret = "the key, with which others can pose as this balancer";
            secret_file::warn(tls, key_option, Readers::OwnerAndGroup, secret, around, findings);
            warn_of_times(tls, PoolTls::CERTIFICATE, &certificate, findings);
            Some(certificate)
        }
        Err(error) => {
            let option = match error.part() {
                Part::Chain => PoolTls::CERTIFICATE,
                Part::Key => key_option,
            };
            findings.error(tls.at(option), &tls.path_of(option), error.to_string());
            None
        }
    }
}

/// Checks the options of `tls` against each other and against the users of the pool.
pub(super) fn check(pool: View<'_, Pool>, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let Some(tls) = pool.get(Pool::TLS) else { return };
    if users.speak(Protocol::Udp) {
        let text = "stated, and a front door that speaks udp uses this pool, but TLS needs a stream; \
                    accepted with http and tcp";
        findings.error(pool.at(Pool::TLS), &pool.path_of(Pool::TLS), text.to_string());
    }
    if users.doors.iter().any(|door| door.has_sni()) {
        let text = "stated, and a front door with `sni`, which passes the clients' TLS on, uses this pool; \
                    accepted: `tls` here or `sni` there";
        findings.error(pool.at(Pool::TLS), &pool.path_of(Pool::TLS), text.to_string());
    }
    if users.doors.is_empty() && !pool.given(Pool::HEALTH) {
        let text = "has no effect: no front door uses this pool, and it has no checks";
        findings.warning(pool.at(Pool::TLS), &pool.path_of(Pool::TLS), text.to_string());
    }
    if tls.given(PoolTls::KEY) && !tls.given(PoolTls::CERTIFICATE) {
        let text = "a key without `certificate`; accepted: both, or `certificate` with both in it";
        findings.error(tls.at(PoolTls::KEY), &tls.path_of(PoolTls::KEY), text.to_string());
    }
    if tls.get(PoolTls::VERIFY) {
        return;
    }
    let text =
        "false, so backends are not verified: anyone on the way can read and change what passes";
    findings.warning(tls.at(PoolTls::VERIFY), &tls.path_of(PoolTls::VERIFY), text.to_string());
    if tls.given(PoolTls::CA) {
        let text = "has no effect: `verify` is false";
        findings.warning(tls.at(PoolTls::CA), &tls.path_of(PoolTls::CA), text.to_string());
    }
}
