//! `[api]`: access to the API, and the audit log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use equipoise_api::audit::AuditTarget;
use equipoise_api::{ApiToken, Policy, Token, TokenDigest};

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::text::ApiListen;
use super::values::Values;
use super::{FileKind, Surroundings, tables};

/// Access to the API over TCP.
pub(super) fn policy(
    api: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Policy {
    let mut tokens: Vec<ApiToken> = Vec::new();
    for values in api.tables("token") {
        let Some(token) = token(values, around, findings) else { continue };
        if let Some(first) = tokens.iter().find(|other| other.digest == token.digest) {
            let text = format!(
                "the same token as that of `{}`; accepted: a different token, so that the audit log can distinguish \
                 them (equipoise api-token FILE creates one)",
                first.name
            );
            findings.error(values.at, &values.path, text);
        }
        tokens.push(token);
    }
    listening(api, findings);
    Policy { tokens, failures_per_minute: api.amount("auth-failures") }
}

/// Destination of the audit log.
pub(super) fn audit(api: &Values) -> AuditTarget {
    match api.text("audit-log") {
        None => AuditTarget::Log,
        Some(path) => {
            AuditTarget::File { path: PathBuf::from(path), bytes_max: api.amount("audit-log-max") }
        }
    }
}

fn token(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ApiToken> {
    let digest = digest(values, around, findings);
    let role = values.choice("role", &tables::API_ROLE)?;
    Some(ApiToken { name: values.text("name")?.into(), role, digest: digest? })
}

fn digest(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<TokenDigest> {
    let (at, option) = match values.given("hash") {
        true => (values.at("hash"), values.path_of("hash")),
        false => (values.at("file"), values.path_of("file")),
    };
    let wrong = match (values.text("file"), values.parsed::<TokenDigest>("hash")) {
        (Some(_), Some(_)) => "`file` is given too; accepted: one of the two".to_string(),
        (None, Some(digest)) => return Some(digest),
        // The given option has an error that was already reported.
        (None, None) if findings.has_error_below(&values.path) => return None,
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
                        "file",
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

fn listening(api: &Values, findings: &mut Findings<'_>) {
    let Some(ApiListen(Some(address))) = api.parsed("listen") else { return };
    let address: SocketAddr = address;
    let has_tokens = !api.tables("token").is_empty();
    if !address.ip().to_canonical().is_loopback() && !has_tokens && !api.flag("allow-remote") {
        let text = format!(
            "\"{address}\" can be reached from other machines, and no token is configured; accepted: a loopback \
             address; another address with an [[api.token]] (equipoise api-token FILE creates one); or another address \
             with allow-remote = true, so that other machines can read, and cannot change anything"
        );
        findings.error(api.at("listen"), &api.path_of("listen"), text);
    }
}
