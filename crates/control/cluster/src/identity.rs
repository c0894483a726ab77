//! Identities in certificates.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Fingerprint, Name};

/// The rights of a certificate of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Signs the certificates of the other roles.
    Authority,
    /// Serves the cluster API.
    Controller,
    /// Reports as itself, and follows instructions.
    Node,
    /// Reads members, creates and revokes tokens: the command line on a controller's machine.
    Operator,
}

/// An identity, written into certificates as the URI `equipoise://CLUSTER/ROLE/NAME`, their subject
/// alternative name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: Name,
    /// The role.
    pub role: Role,
    /// The holder's name.
    pub name: Name,
}

/// Content of a certificate. TLS has verified its signature before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Identity of the holder.
    pub identity: Identity,
    /// Beginning of its validity.
    pub valid_from: SystemTime,
    /// End of its validity.
    pub valid_until: SystemTime,
    /// Fingerprint of its public key.
    pub key: Fingerprint,
}

/// A certificate that is not of a cluster of equipoise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCertified {
    /// The bytes are not a certificate.
    #[error("not an X.509 certificate")]
    NotACertificate,
    /// The certificate has no identity, or several.
    #[error("the certificate has not exactly one name of the form equipoise://CLUSTER/ROLE/NAME")]
    NoIdentity,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Authority => "authority",
            Role::Controller => "controller",
            Role::Node => "node",
            Role::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

const SCHEME: &str = "equipoise://";

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.cluster, self.role, self.name)
    }
}

impl FromStr for Identity {
    type Err = NotCertified;

    fn from_str(text: &str) -> Result<Identity, NotCertified> {
        let mut parts = text.strip_prefix(SCHEME).ok_or(NotCertified::NoIdentity)?.split('/');
        let (Some(cluster), Some(role), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotCertified::NoIdentity);
        };
        let roles = [Role::Authority, Role::Controller, Role::Node, Role::Operator];
        let role = roles.into_iter().find(|known| known.word() == role);
        Ok(Identity {
            cluster: cluster.parse().map_err(|_| NotCertified::NoIdentity)?,
            role: role.ok_or(NotCertified::NoIdentity)?,
            name: name.parse().map_err(|_| NotCertified::NoIdentity)?,
        })
    }
}

impl Certified {
    /// Parses a certificate.
    ///
    /// # Errors
    /// [`NotCertified`].
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Certified, NotCertified> {
        let (rest, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| NotCertified::NotACertificate)?;
        if !rest.is_empty() {
            return Err(NotCertified::NotACertificate);
        }
        let names = parsed.subject_alternative_name().map_err(|_| NotCertified::NotACertificate)?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let mut ours = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
            _ => None,
        });
        let (Some(uri), None) = (ours.next(), ours.next()) else {
            return Err(NotCertified::NoIdentity);
        };
        let validity = parsed.validity();
        Ok(Certified {
            identity: uri.parse()?,
            valid_from: at(validity.not_before.timestamp()),
            valid_until: at(validity.not_after.timestamp()),
            key: Fingerprint::of_key(parsed.public_key().raw),
        })
    }

    /// True if the certificate is valid at this time.
    pub fn holds_at(&self, now: SystemTime) -> bool {
        self.valid_from <= now && now <= self.valid_until
    }
}

/// Times before 1970 count as 1970.
fn at(unix_seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_back_as_it_was_written() {
        for text in [
            "equipoise://prod/node/edge-1",
            "equipoise://prod/controller/c.1",
            "equipoise://p/operator/x",
        ] {
            assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_malformed_identity_uri_is_rejected() {
        for text in [
            "",
            "equipoise://prod/node",
            "equipoise://prod/node/a/b",
            "equipoise://prod/root/a",
            "equipoise://prod/Node/a",
            "equipoise:///node/a",
            "https://prod/node/a",
            "equipoise://prod/node/a%2Fb",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused() {
        for bytes in [&b""[..], b"0", b"garbage that is no DER", &[0x30, 0x82, 0xff, 0xff]] {
            let der = CertificateDer::from(bytes);
            assert_eq!(Certified::of(&der), Err(NotCertified::NotACertificate));
        }
    }
}
