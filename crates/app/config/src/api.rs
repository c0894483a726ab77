//! `[api]`: access to the API over TCP, and the audit log.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use equipoise_api::audit::AuditTarget;
use equipoise_api::{ApiClient, ApiToken, Policy, Token, TokenDigest};

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::text::ApiListen;
use super::view::View;
use super::{FileKind, Surroundings, tables};

/// Access to the API over TCP.
pub(super) fn policy(
    api: View<'_, tables::Api>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Policy {
    let mut tokens: Vec<ApiToken> = Vec::new();
    for values in api.get(tables::Api::TOKEN) {
        let Some(token) = token(values, around, findings) else { continue };
        if let Some(first) = tokens.iter().find(|other| other.digest == token.digest) {
            let text = format!(
                "the same token as that of `{}`; accepted: a different token, so that the audit log can distinguish \
                 them (equipoise api-token FILE creates one)",
                first.name
            );
            findings.error(values.start(), values.path(), text);
        }
        tokens.push(token);
    }
    let clients = clients(api, findings);
    listening(api, findings);
    Policy { tokens, clients, failures_per_minute: api.get(tables::Api::AUTH_FAILURES) }
}

/// Destination of the audit log.
pub(super) fn audit(api: View<'_, tables::Api>) -> AuditTarget {
    match api.get(tables::Api::AUDIT_LOG) {
        None => AuditTarget::Log,
        Some(path) => AuditTarget::File {
            path: PathBuf::from(path),
            bytes_max: api.get(tables::Api::AUDIT_LOG_MAX),
        },
    }
}

fn token(
    values: View<'_, tables::ApiToken>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ApiToken> {
    let digest = digest(values, around, findings);
    let role = values.get(tables::ApiToken::ROLE)?;
    Some(ApiToken { name: values.get(tables::ApiToken::NAME)?.into(), role, digest: digest? })
}

fn digest(
    values: View<'_, tables::ApiToken>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<TokenDigest> {
    let (at, option) = match values.given(tables::ApiToken::HASH) {
        true => (values.at(tables::ApiToken::HASH), values.path_of(tables::ApiToken::HASH)),
        false => (values.at(tables::ApiToken::FILE), values.path_of(tables::ApiToken::FILE)),
    };
    let wrong = match (values.get(tables::ApiToken::FILE), values.get(tables::ApiToken::HASH)) {
        (Some(_), Some(_)) => "`file` is given too; accepted: one of the two".to_string(),
        (None, Some(digest)) => return Some(digest),
        // The given option has an error that was already reported.
        (None, None) if findings.has_error_below(values.path()) => return None,
        (None, None) => {
            "missing; accepted: `file`, a path to a file with the token, or `hash`, its digest (equipoise api-token \
             FILE creates both)"
                .to_string()
        }
        (Some(file), None) => match (around.read)(Path::new(file), FileKind::Secret) {
            Ok(text) => match text.parse::<Token>() {
                Ok(token) => {
                    secret_file::warn(
                        values,
                        tables::ApiToken::FILE,
                        Readers::OwnerAndGroup,
                        "the token",
                        around,
                        findings,
                    );
                    return Some(TokenDigest::of(token.reveal().as_bytes()));
                }
                Err(error) => format!("\"{file}\" is not a token's file: {error}"),
            },
            Err(error) => {
                format!("\"{file}\" cannot be read: {error}; accepted: a file with the token")
            }
        },
    };
    findings.error(at, &option, wrong);
    None
}

/// Callers with client certificates.
fn clients(api: View<'_, tables::Api>, findings: &mut Findings<'_>) -> Vec<ApiClient> {
    let is_asked = api.get(tables::Api::TLS).is_some_and(|tls| tls.given(tables::ApiTls::CLIENTS));
    let mut clients: Vec<ApiClient> = Vec::new();
    for values in api.get(tables::Api::CLIENT) {
        if !is_asked {
            let text = "clients are not asked for certificates; accepted: with `clients = { ca = \"...\" }` in [api.tls]";
            findings.error(values.start(), values.path(), text.to_string());
        }
        let Some(client) = client(values, findings) else { continue };
        let is_same = |other: &&ApiClient| {
            (&other.subject, &other.san, &other.sha256)
                == (&client.subject, &client.san, &client.sha256)
        };
        if let Some(first) = clients.iter().find(is_same) {
            let text =
                format!("the same certificates as those of `{}`, which comes first", first.name);
            findings.error(values.start(), values.path(), text);
        }
        clients.push(client);
    }
    clients
}

fn client(values: View<'_, tables::ApiClient>, findings: &mut Findings<'_>) -> Option<ApiClient> {
    let properties =
        [tables::ApiClient::SUBJECT, tables::ApiClient::SAN, tables::ApiClient::SHA256];
    if !properties.into_iter().any(|option| values.given(option)) {
        if !findings.has_error_below(values.path()) {
            let text = "states no certificate; accepted: `subject`, `san` or `sha256`, or several, of which a certificate has \
                        to match all";
            findings.error(values.start(), values.path(), text.to_string());
        }
        return None;
    }
    let san = |text: &str| match (text.parse::<IpAddr>(), text.contains(['@', ':'])) {
        (Ok(address), _) => address.to_string(),
        (Err(_), true) => text.to_string(),
        (Err(_), false) => text.to_ascii_lowercase(),
    };
    Some(ApiClient {
        name: values.get(tables::ApiClient::NAME)?.into(),
        role: values.get(tables::ApiClient::ROLE)?,
        subject: values.get(tables::ApiClient::SUBJECT).map(str::to_string),
        san: values.get(tables::ApiClient::SAN).map(san),
        sha256: values
            .get(tables::ApiClient::SHA256)
            .map(|text| text.replace(':', "").to_ascii_lowercase()),
    })
}

fn listening(api: View<'_, tables::Api>, findings: &mut Findings<'_>) {
    let tls = api.get(tables::Api::TLS);
    let ApiListen(address) = api.get(tables::Api::LISTEN);
    let Some(address): Option<SocketAddr> = address else {
        if api.given(tables::Api::TLS) {
            let text = "has no effect: `listen` is \"off\", and the unix socket is never encrypted";
            findings.warning(
                api.at(tables::Api::TLS),
                &api.path_of(tables::Api::TLS),
                text.to_string(),
            );
        }
        return;
    };
    if address.ip().to_canonical().is_loopback() {
        return;
    }
    let has_tokens = !api.get(tables::Api::TOKEN).is_empty();
    if has_tokens && tls.is_none() {
        let text = format!(
            "\"{address}\" can be reached from other machines, and tokens go there in the clear; accepted without this \
             warning: `tls`, or a loopback address"
        );
        findings.warning(api.at(tables::Api::LISTEN), &api.path_of(tables::Api::LISTEN), text);
    }
    let clients = tls.and_then(|tls| tls.get(tables::ApiTls::CLIENTS));
    let needs_certificate =
        clients.is_some_and(|clients| clients.get(tables::TlsClients::REQUIRED));
    let has_clients = !api.get(tables::Api::CLIENT).is_empty();
    if !has_tokens && !has_clients && !needs_certificate && !api.get(tables::Api::ALLOW_REMOTE) {
        let text = format!(
            "\"{address}\" can be reached from other machines, and no token is configured; accepted: a loopback \
             address; another address with an [[api.token]] (equipoise api-token FILE creates one) or with certificates of \
             clients that `tls` requires; or another address with allow-remote = true, so that other machines can read, and cannot change anything"
        );
        findings.error(api.at(tables::Api::LISTEN), &api.path_of(tables::Api::LISTEN), text);
    }
}
