//! Certificates of clients: their verification, and their content for backends.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

use crate::certificate::{fingerprint, read_chain};
use crate::error::CertificateError;
use crate::profile::PROVIDER;

/// The client certificates that a listener asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    authorities: Vec<CertificateDer<'static>>,
    required: bool,
}

impl Clients {
    /// Certificates signed by one of these authorities, in PEM. Unless they are `required`, a
    /// client may have none.
    ///
    /// # Errors
    /// [`CertificateError`] if the text has no certificates of authorities.
    pub fn from_pem(authorities: &str, required: bool) -> Result<Clients, CertificateError> {
        let clients = Clients { authorities: read_chain(authorities)?, required };
        clients.verifier().map(|_| clients)
    }

    pub(crate) fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    pub(crate) fn is_required(&self) -> bool {
        self.required
    }

    pub(crate) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
        let unusable = |error: String| CertificateError::Unusable(error);
        let mut roots = RootCertStore::empty();
        for one in &self.authorities {
            roots.add(one.clone()).map_err(|error| unusable(error.to_string()))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), PROVIDER.clone());
        let builder = if self.required { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|error| unusable(error.to_string()))
    }
}

/// Content of a client's certificate, as text for headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The subject: `CN=alice, O=Example`, in the certificate's order. A backslash precedes the
    /// special characters of values, as in RFC 4514. Bytes other than printable ASCII, and `%`, are
    /// written as `%` and two hexadecimal digits.
    pub subject: String,
    /// SHA-256 of the certificate (DER), in hexadecimal digits.
    pub sha256: String,
}

impl ClientIdentity {
    /// Reads a certificate that was verified.
    pub fn of(certificate: &CertificateDer<'_>) -> ClientIdentity {
        let parsed = X509Certificate::from_der(certificate);
        let subject = parsed.map(|(_, it)| text_of(it.subject())).unwrap_or_default();
        let mut escaped = String::new();
        for byte in subject.bytes() {
            // Writing to a string cannot fail.
            let _ = match byte {
                b'%' => escaped.write_str("%25"),
                b' '..=b'~' => escaped.write_char(char::from(byte)),
                _ => write!(escaped, "%{byte:02X}"),
            };
        }
        ClientIdentity { subject: escaped, sha256: fingerprint(certificate) }
    }
}

/// The common name of a certificate's subject, if it has one that is text.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_string)
}

/// Whether a text has the form of [`ClientIdentity::subject`]: another one, such as that of openssl
/// with spaces around `=`, is the subject of no certificate.
pub fn is_subject(text: &str) -> bool {
    let is_kind = |kind: &str| {
        let registry = oid_registry();
        let is_oid = kind.contains('.') && kind.bytes().all(|it| matches!(it, b'0'..=b'9' | b'.'));
        is_oid || registry.keys().any(|oid| oid2abbrev(oid, registry) == Ok(kind))
    };
    // Each special character of a value is escaped, so that these separate attributes.
    let bare = text.replace("\\\\", "").replace(r"\,", "").replace(r"\+", "").replace(r"\=", "");
    bare.split(", ").flat_map(|relative| relative.split('+')).all(|attribute| {
        let parts = attribute.split_once('=');
        parts.is_some_and(|(kind, value)| {
            is_kind(kind) && !value.starts_with([' ', '"']) && !value.contains(['=', ','])
        })
    })
}

/// The DNS names (in lower case), e-mail addresses, URIs and IP addresses of a certificate's
/// subjectAltName, without entries that could be of another type by their text.
pub fn alternative_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let of = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) if !name.contains(['@', ':']) && !is_address(name) => {
            Some(name.to_ascii_lowercase())
        }
        GeneralName::RFC822Name(name) if name.contains('@') && !name.contains(':') => {
            Some((*name).to_string())
        }
        GeneralName::URI(name) if name.contains(':') && !is_address(name) => {
            Some((*name).to_string())
        }
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(of).collect()
}

/// The IP address of 4 or 16 bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// A name as text. The special characters of values are escaped, so that a value cannot pass for
/// further attributes.
fn text_of(name: &X509Name<'_>) -> String {
    let attribute = |one: &AttributeTypeAndValue<'_>| {
        let kind = match oid2abbrev(one.attr_type(), oid_registry()) {
            Ok(short) => short.to_string(),
            Err(_) => one.attr_type().to_id_string(),
        };
        match one.as_str() {
            Ok(value) => format!("{kind}={}", escaped(value)),
            Err(_) => {
                let digits = one.as_slice().iter().map(|byte| format!("{byte:02x}"));
                format!("{kind}=#{}", digits.collect::<String>())
            }
        }
    };
    let relative = |one: &RelativeDistinguishedName<'_>| {
        one.iter().map(attribute).collect::<Vec<_>>().join("+")
    };
    name.iter().map(relative).collect::<Vec<_>>().join(", ")
}

/// A value with the escapes of RFC 4514, section 2.4.
fn escaped(value: &str) -> String {
    let last = value.chars().count().saturating_sub(1);
    let mut text = String::with_capacity(value.len());
    for (place, char) in value.chars().enumerate() {
        let is_special = match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => true,
            '#' => place == 0,
            ' ' => place == 0 || place == last,
            _ => false,
        };
        if is_special {
            text.push('\\');
        }
        text.push(char);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(name: &str) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_certificate_subject_is_escaped_for_a_header_field() {
        for (name, subject) in [
            ("alice", "CN=alice, O=Example"),
            ("50%", "CN=50%25, O=Example"),
            ("a\r\nX-Admin: yes", "CN=a%0D%0AX-Admin: yes, O=Example"),
            ("é", "CN=%C3%A9, O=Example"),
            ("x, CN=admin", "CN=x\\, CN\\=admin, O=Example"),
            ("a+CN=b", "CN=a\\+CN\\=b, O=Example"),
            (" #\\", "CN=\\ #\\\\, O=Example"),
        ] {
            let identity = ClientIdentity::of(certificate(name).der());
            assert_eq!(identity.subject, subject);
            assert!(is_subject(subject), "{subject}");
            assert_eq!(identity.sha256.len(), 64);
        }
    }

    #[test]
    fn is_subject_accepts_only_the_format_of_equipoise() {
        for fine in ["CN=a", "C=DE, O=A\\, B+OU=x, Email=a@b", "1.2.3.4=#0c01, uid=7", "CN="] {
            assert!(is_subject(fine), "{fine}");
        }
        for wrong in [
            "alice",
            "CN = alice, O = Example",
            "/CN=alice/O=Example",
            "subject=CN=alice",
            "O=Example,CN=alice",
            "CN=alice,O=Example",
            "CN=alice, O=\"A, B\"",
            "CN=a, emailAddress=a@b",
            "commonName=a",
            "",
        ] {
            assert!(!is_subject(wrong), "{wrong}");
        }
    }

    #[test]
    fn only_alternative_names_of_unambiguous_type_are_returned() {
        use rcgen::SanType;
        let text = |text: &str| text.to_string().try_into().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![
            SanType::DnsName(text("Ops.Example.com")),
            SanType::Rfc822Name(text("a@example.com")),
            SanType::URI(text("spiffe://example.com/ops")),
            SanType::URI(text("ops.example.org")),
            SanType::DnsName(text("b@example.com")),
            SanType::IpAddress([192, 0, 2, 1].into()),
            SanType::IpAddress("2001:db8::1".parse().unwrap()),
            SanType::DnsName(text("192.0.2.2")),
            SanType::URI(text("2001:db8::2")),
        ];
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(
            alternative_names(certificate.der()),
            [
                "ops.example.com",
                "a@example.com",
                "spiffe://example.com/ops",
                "192.0.2.1",
                "2001:db8::1"
            ]
        );
        assert!(alternative_names(&CertificateDer::from(vec![1, 2])).is_empty());
    }

    #[test]
    fn client_authorities_that_are_not_certificates_are_refused() {
        let pem = certificate("ca").pem();
        let key = KeyPair::generate().unwrap().serialize_pem();
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for required in [true, false] {
            let read = |text: &str| Clients::from_pem(text, required);
            assert!(read(&pem).is_ok() && read(&(key.clone() + &pem)).is_ok());
            for text in ["", "ca", &key] {
                assert_eq!(read(text), Err(CertificateError::NoCertificate), "{text}");
            }
            assert_eq!(read(&pem.replacen('M', "!", 1)), Err(CertificateError::Pem));
            for text in [empty, &(pem.clone() + empty)] {
                let refused = matches!(read(text), Err(CertificateError::Unusable(_)));
                assert!(refused, "{text}: {:?}", read(text));
            }
        }
    }
}
