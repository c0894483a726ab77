//! TLS of front doors and of the API, and its certificate files.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use equipoise_acme::AcmeFolder;
use equipoise_session::config::{Protocol, ServerTls};
use equipoise_tls::{
    AutomaticName, Certificate, CertificateFiles, Clients, Part, Protocols, TlsOptions,
};

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::values::{Values, chosen};
use super::{FileKind, Surroundings, acme};

/// The `tls` of a front door. `None`: it has none, or one with errors.
pub(super) fn of_door(
    door: &Values,
    folder: &AcmeFolder,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ServerTls> {
    let tls = door.table("tls")?;
    let protocols = match door.choice("protocol")? {
        Protocol::Http if door.flag("http2") => Protocols::Http2,
        Protocol::Http => Protocols::Http1,
        Protocol::Tcp | Protocol::Udp => Protocols::Any,
    };
    let names = acme::names(tls.typed(), folder, around, findings);
    of_listener(tls, names, protocols, around, findings)
}

/// The `tls` of the API. `None`: it has none, or one with errors.
pub(super) fn of_api(
    api: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ServerTls> {
    let tls = api.table("tls").filter(|tls| tls.given("certificates"))?;
    of_listener(tls, (Vec::new(), Vec::new()), Protocols::Http1, around, findings)
}

/// TLS with these automatic names, and with their certificates that were issued already.
fn of_listener(
    tls: &Values,
    (automatic, issued): (Vec<AutomaticName>, Vec<Certificate>),
    protocols: Protocols,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ServerTls> {
    let stated = tls.list("certificates").unwrap_or_default();
    if stated.is_empty() && (automatic.is_empty() || tls.given("certificates")) {
        let text = match tls.given("certificates") {
            true => "an empty list; accepted: one certificate or more",
            false => "missing; accepted: a list of certificates, or names in `auto`",
        };
        findings.error(tls.at("certificates"), &tls.path_of("certificates"), text.into());
        return None;
    }
    let read = stated.iter().map(|values| certificate(values, around, findings));
    // Every one is read, so that every error is reported.
    let certificates: Vec<_> = read.collect();
    let certificates: Option<Vec<_>> =
        certificates.into_iter().chain(issued.into_iter().map(Some)).collect();
    let clients = match tls.table("clients") {
        Some(values) => Some(clients(values, around, findings)?),
        None => None,
    };
    let options = TlsOptions {
        clients,
        profile: chosen(tls, "profile"),
        strict: tls.flag("strict"),
        protocols,
        automatic,
    };
    match ServerTls::new(options, certificates?) {
        Ok(tls) => Some(tls),
        Err(error) => {
            findings.error(tls.at, &tls.path, format!("cannot be used: {error}"));
            None
        }
    }
}

fn certificate(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Certificate> {
    let path = |option: &str| values.text(option).map(PathBuf::from);
    let files = CertificateFiles { chain: path("chain")?, key: path("key"), ocsp: path("ocsp") };
    let key_option = if files.key.is_some() { "key" } else { "chain" };
    match files.load(|path| (around.read)(path, FileKind::Certificates)) {
        Ok(certificate) => {
            let secret = "the key, with which others can pose as this server";
            secret_file::warn(values, key_option, Readers::OwnerAndGroup, secret, around, findings);
            warn_of_times(values, "chain", &certificate, findings);
            let certificate = certificate.stapled(|path| {
                let text = (around.read)(path, FileKind::Ocsp)?;
                Ok(text.chars().map(|byte| byte as u8).collect())
            });
            if let Some(problem) = certificate.staple_problem(SystemTime::now()) {
                let text = format!("{problem}; it is not stapled");
                findings.warning(values.at("ocsp"), &values.path_of("ocsp"), text);
            }
            Some(certificate)
        }
        Err(error) => {
            let option = match error.part() {
                Part::Chain => "chain",
                Part::Key => key_option,
            };
            let mut text = error.to_string();
            if files.key.is_none() && error.lacks_key() {
                text.push_str(
                    "; accepted: both in one file, or `{ chain = \"...\", key = \"...\" }`",
                );
            }
            findings.error(values.at(option), &values.path_of(option), text);
            None
        }
    }
}

fn clients(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Clients> {
    let path = values.text("ca")?;
    let wrong = match (around.read)(Path::new(path), FileKind::Certificates) {
        Err(error) => format!("\"{path}\" cannot be read: {error}; accepted: a file of PEM"),
        Ok(text) => match Clients::from_pem(&text, values.flag("required")) {
            Ok(clients) => return Some(clients),
            Err(error) => format!("\"{path}\" has {error}"),
        },
    };
    findings.error(values.at("ca"), &values.path_of("ca"), wrong);
    None
}

/// Warns if a certificate is not valid, or not for much longer. It is no error: the others may be
/// valid, and a wrong clock must not prevent a start.
pub(super) fn warn_of_times(
    values: &Values,
    option: &'static str,
    certificate: &Certificate,
    findings: &mut Findings<'_>,
) {
    if let Some(validity) = certificate.doubt(SystemTime::now()) {
        let path = values.text(option).unwrap_or_default();
        let text = format!("\"{path}\" has a certificate (`{}`) {validity}", certificate.subject());
        findings.warning(values.at(option), &values.path_of(option), text);
    }
}
