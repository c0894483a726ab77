//! TLS of front doors and of the API, and its certificate files.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use equipoise_acme::AcmeFolder;
use equipoise_session::config::{Protocol, ServerTls};
use equipoise_tls::{
    AutomaticName, Certificate, CertificateFiles, Clients, Part, Protocols, TlsOptions,
};

use super::key::{Briefs, Has, Key, Text};
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{self, Api, ApiTls, Door, DoorTls, ListenerTls, Session, TlsClients};
use super::view::{Location, View};
use super::{FileKind, Surroundings, acme};

/// The `tls` of a front door. `None`: it has none, or one with errors.
pub(super) fn of_door(
    door: View<'_, Session>,
    folder: &AcmeFolder,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ServerTls> {
    let tls = door.get(Session::TLS)?;
    let protocols = match door.get(Session::PROTOCOL)? {
        Protocol::Http if door.get(Door::HTTP2) => Protocols::Http2,
        Protocol::Http => Protocols::Http1,
        Protocol::Tcp | Protocol::Udp => Protocols::Any,
    };
    let names = acme::names(tls, folder, around, findings);
    let listener = Listener {
        tls: tls.part(),
        certificates: stated(tls, DoorTls::CERTIFICATES),
        clients: tls.get(DoorTls::CLIENTS).map(View::part),
    };
    of_listener(listener, names, protocols, around, findings)
}

/// The `tls` of the API. `None`: it has none, or one with errors.
pub(super) fn of_api(
    api: View<'_, Api>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ServerTls> {
    let tls = api.get(Api::TLS).filter(|tls| tls.given(ApiTls::CERTIFICATES))?;
    let listener = Listener {
        tls: tls.part(),
        certificates: stated(tls, ApiTls::CERTIFICATES),
        clients: tls.get(ApiTls::CLIENTS).map(View::part),
    };
    of_listener(listener, (Vec::new(), Vec::new()), Protocols::Http1, around, findings)
}

/// The `tls` of a front door or of the API.
struct Listener<'v> {
    tls: View<'v, ListenerTls>,
    certificates: Certificates<'v>,
    clients: Option<View<'v, TlsClients>>,
}

/// `certificates` of a listener.
struct Certificates<'v> {
    is_given: bool,
    location: Location,
    stated: Vec<View<'v, tables::Certificate>>,
}

fn stated<'v, T, C: Has<tables::Certificate> + 'static>(
    tls: View<'v, T>,
    option: Key<T, Option<Briefs<C>>>,
) -> Certificates<'v> {
    Certificates {
        is_given: tls.given(option),
        location: tls.location(option),
        stated: tls.get(option).into_iter().flatten().map(View::part).collect(),
    }
}

/// TLS with these automatic names, and with their certificates that were issued already.
fn of_listener(
    Listener { tls, certificates, clients: verified }: Listener<'_>,
    (automatic, issued): (Vec<AutomaticName>, Vec<Certificate>),
    protocols: Protocols,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ServerTls> {
    let Certificates { is_given, location, stated } = certificates;
    if stated.is_empty() && (automatic.is_empty() || is_given) {
        let text = match is_given {
            true => "an empty list; accepted: one certificate or more",
            false => "missing; accepted: a list of certificates, or names in `auto`",
        };
        findings.error(location.at, &location.path, text.into());
        return None;
    }
    let read = stated.into_iter().map(|values| certificate(values, around, findings));
    // Every one is read, so that every error is reported.
    let certificates: Vec<_> = read.collect();
    let certificates: Option<Vec<_>> =
        certificates.into_iter().chain(issued.into_iter().map(Some)).collect();
    let clients = match verified {
        Some(values) => Some(clients(values, around, findings)?),
        None => None,
    };
    let options = TlsOptions {
        clients,
        profile: tls.get(ListenerTls::PROFILE),
        strict: tls.get(ListenerTls::STRICT),
        protocols,
        automatic,
    };
    match ServerTls::new(options, certificates?) {
        Ok(tls) => Some(tls),
        Err(error) => {
            findings.error(tls.start(), tls.path(), format!("cannot be used: {error}"));
            None
        }
    }
}

fn certificate(
    values: View<'_, tables::Certificate>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Certificate> {
    let (chain, key, ocsp) =
        (tables::Certificate::CHAIN, tables::Certificate::KEY, tables::Certificate::OCSP);
    let path = |option: Key<_, Option<Text>>| values.get(option).map(PathBuf::from);
    let files = CertificateFiles { chain: path(chain)?, key: path(key), ocsp: path(ocsp) };
    let key_option = if files.key.is_some() { key } else { chain };
    match files.load(|path| (around.read)(path, FileKind::Certificates)) {
        Ok(certificate) => {
            let secret = "the key, with which others can pose as this server";
            secret_file::warn(values, key_option, Readers::OwnerAndGroup, secret, around, findings);
            warn_of_times(values, chain, &certificate, findings);
            let certificate = certificate.stapled(|path| {
                let text = (around.read)(path, FileKind::Ocsp)?;
                Ok(text.chars().map(|byte| byte as u8).collect())
            });
            if let Some(problem) = certificate.staple_problem(SystemTime::now()) {
                let text = format!("{problem}; it is not stapled");
                findings.warning(values.at(ocsp), &values.path_of(ocsp), text);
            }
            Some(certificate)
        }
        Err(error) => {
            let option = match error.part() {
                Part::Chain => chain,
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
    values: View<'_, TlsClients>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Clients> {
    let path = values.get(TlsClients::CA)?;
    let wrong = match (around.read)(Path::new(path), FileKind::Certificates) {
        Err(error) => format!("\"{path}\" cannot be read: {error}; accepted: a file of PEM"),
        Ok(text) => match Clients::from_pem(&text, values.get(TlsClients::REQUIRED)) {
            Ok(clients) => return Some(clients),
            Err(error) => format!("\"{path}\" has {error}"),
        },
    };
    findings.error(values.at(TlsClients::CA), &values.path_of(TlsClients::CA), wrong);
    None
}

/// Warns if a certificate is not valid, or not for much longer. It is no error: the others may be
/// valid, and a wrong clock must not prevent a start.
pub(super) fn warn_of_times<T>(
    values: View<'_, T>,
    option: Key<T, Option<Text>>,
    certificate: &Certificate,
    findings: &mut Findings<'_>,
) {
    if let Some(validity) = certificate.doubt(SystemTime::now()) {
        let path = values.get(option).unwrap_or_default();
        let text = format!("\"{path}\" has a certificate (`{}`) {validity}", certificate.subject());
        findings.warning(values.at(option), &values.path_of(option), text);
    }
}
