//! TLS to the backends of a pool, and its certificate files.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use equipoise_session::config::{Protocol, Upstream};
use equipoise_tls::{CertificateFiles, ClientOptions, ClientTls, Part, Protocols, Trust};
use rustls::pki_types::ServerName;

use super::door_tls::warn_of_times;
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::users::{PoolUsers, protocol_of, sni_routes};
use super::values::{Values, chosen};
use super::{FileKind, Surroundings, tables};

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
    pool: &Values,
    users: &PoolUsers<'_>,
    system: &System,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ClientTls> {
    let tls = pool.table("tls")?;
    let trust = trust(tls, system, around, findings);
    let certificate = match tls.text("certificate") {
        Some(chain) => Some(certificate(chain, tls, around, findings)?),
        None => None,
    };
    let server_name = tls.text("server-name").map(|name| ServerName::try_from(name.to_string()));
    let options = ClientOptions {
        trust: trust?,
        certificate,
        profile: chosen(tls, "profile", &tables::PROFILE),
        server_name: server_name.transpose().ok()?,
        protocols: protocols(pool, users),
    };
    match ClientTls::new(options) {
        Ok(tls) => Some(tls),
        Err(error) => {
            let option = if tls.given("ca") { "ca" } else { "verify" };
            let text = match tls.text("ca") {
                Some(path) => format!("\"{path}\" has {error}"),
                None => format!("the system's authorities cannot be used: {error}; state `ca`"),
            };
            findings.error(tls.at(option), &tls.path_of(option), text);
            None
        }
    }
}

/// The application protocols that the pool offers its backends.
fn protocols(pool: &Values, users: &PoolUsers<'_>) -> Protocols {
    match pool.choice("upstream", &tables::UPSTREAM) {
        Some(Upstream::Http2) => Protocols::OnlyHttp2,
        _ if users.are_http() => Protocols::Http1,
        _ => Protocols::Any,
    }
}

fn trust(
    tls: &Values,
    system: &System,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Trust> {
    if !tls.flag("verify") {
        return Some(Trust::Anyone);
    }
    let Some(path) = tls.text("ca") else {
        let trust = system.trust();
        if matches!(trust, Trust::Authorities(all) if all.is_empty()) {
            let text = "this system has no authorities, so no backend can be verified; accepted: a \
                        file with authorities (or the package ca-certificates)";
            findings.error(tls.at, &tls.path_of("ca"), text.to_string());
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
    findings.error(tls.at("ca"), &tls.path_of("ca"), wrong);
    None
}

fn certificate(
    chain: &str,
    tls: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<equipoise_tls::Certificate> {
    let files = CertificateFiles {
        chain: chain.into(),
        key: tls.text("key").map(PathBuf::from),
        ocsp: None,
    };
    let key_option = if files.key.is_some() { "key" } else { "certificate" };
    match files.load(|path| (around.read)(path, FileKind::Certificates)) {
        Ok(certificate) => {
            let secret = "the key, with which others can pose as this balancer";
            secret_file::warn(tls, key_option, Readers::OwnerAndGroup, secret, around, findings);
            warn_of_times(tls, "certificate", &certificate, findings);
            Some(certificate)
        }
        Err(error) => {
            let option = match error.part() {
                Part::Chain => "certificate",
                Part::Key => key_option,
            };
            findings.error(tls.at(option), &tls.path_of(option), error.to_string());
            None
        }
    }
}

/// Checks the options of `tls` against each other and against the users of the pool.
pub(super) fn check(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let Some(tls) = pool.table("tls") else { return };
    if users.doors.iter().any(|door| protocol_of(door) == Some(Protocol::Udp)) {
        let text = "stated, and a front door that speaks udp uses this pool, but TLS needs a stream; \
                    accepted with http and tcp";
        findings.error(pool.at("tls"), &pool.path_of("tls"), text.to_string());
    }
    if users.doors.iter().any(|door| !sni_routes(door).is_empty()) {
        let text = "stated, and a front door with `sni`, which passes the clients' TLS on, uses this pool; \
                    accepted: `tls` here or `sni` there";
        findings.error(pool.at("tls"), &pool.path_of("tls"), text.to_string());
    }
    if users.doors.is_empty() && !pool.given("health") {
        let text = "has no effect: no front door uses this pool, and it has no checks";
        findings.warning(pool.at("tls"), &pool.path_of("tls"), text.to_string());
    }
    if tls.given("key") && !tls.given("certificate") {
        let text = "a key without `certificate`; accepted: both, or `certificate` with both in it";
        findings.error(tls.at("key"), &tls.path_of("key"), text.to_string());
    }
    if tls.flag("verify") {
        return;
    }
    let text =
        "false, so backends are not verified: anyone on the way can read and change what passes";
    findings.warning(tls.at("verify"), &tls.path_of("verify"), text.to_string());
    if tls.given("ca") {
        let text = "has no effect: `verify` is false";
        findings.warning(tls.at("ca"), &tls.path_of("ca"), text.to_string());
    }
}
