//! Client certificates over TLS, and the callers that they identify.

use std::sync::Arc;

use equipoise_tls::{ClientIdentity, alternative_names};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::Role;

/// A caller with a client certificate. At least one of the three properties is stated, and a
/// certificate has to have all that are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiClient {
    /// Name of the caller in the audit log; unique.
    pub name: Arc<str>,
    /// Role of the caller.
    pub role: Role,
    /// The whole subject, as in [`ClientIdentity::subject`].
    pub subject: Option<String>,
    /// A DNS name (in lower case), e-mail address, URI or IP address of its subjectAltName.
    pub san: Option<String>,
    /// SHA-256 of the certificate (DER), in lower-case hexadecimal digits.
    pub sha256: Option<String>,
}

/// A client certificate that an authority of the listener has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) identity: ClientIdentity,
    names: Vec<String>,
}

impl ClientCertificate {
    /// Reads a certificate that was verified.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> ClientCertificate {
        let identity = ClientIdentity::of(certificate);
        ClientCertificate { identity, names: alternative_names(certificate) }
    }
}

/// The first caller whose certificate it is.
pub(super) fn find<'c>(
    clients: &'c [ApiClient],
    shown: &ClientCertificate,
) -> Option<&'c ApiClient> {
    clients.iter().find(|client| {
        let fits = |stated: &Option<String>, is: &dyn Fn(&str) -> bool| {
            stated.as_ref().map(|stated| is(stated))
        };
        let properties = [
            fits(&client.subject, &|subject| shown.identity.subject == subject),
            fits(&client.san, &|san| shown.names.iter().any(|name| name == san)),
            fits(&client.sha256, &|sha256| shown.identity.sha256 == sha256),
        ];
        let mut stated = properties.into_iter().flatten().peekable();
        stated.peek().is_some() && stated.all(|fits| fits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_to_have_every_stated_property() {
        let shown = ClientCertificate {
            identity: ClientIdentity { subject: "CN=alice".into(), sha256: "ab".into() },
            names: vec!["ops.example".into(), "spiffe://example/ops".into()],
        };
        let client = |subject: &str, san: &str, sha256: &str| {
            let stated = |text: &str| (!text.is_empty()).then(|| text.to_string());
            ApiClient {
                name: "ops".into(),
                role: Role::Admin,
                subject: stated(subject),
                san: stated(san),
                sha256: stated(sha256),
            }
        };
        for (subject, san, sha256, is_found) in [
            ("CN=alice", "", "", true),
            ("", "ops.example", "", true),
            ("", "spiffe://example/ops", "", true),
            ("", "", "ab", true),
            ("CN=alice", "ops.example", "ab", true),
            ("CN=alice", "ops.example", "cd", false),
            ("CN=alice2", "", "", false),
            ("CN=alic", "", "", false),
            ("", "example", "", false),
            ("", "", "", false),
        ] {
            let clients = [client(subject, san, sha256)];
            let found = find(&clients, &shown).is_some();
            assert_eq!(found, is_found, "{subject} {san} {sha256}");
        }
    }
}
