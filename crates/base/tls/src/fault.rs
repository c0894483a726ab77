//! The meaning of a failed handshake with a server.

use std::io;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription as Alert, CertificateError, Error, PeerIncompatible};

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The certificate is for other names.
    Name,
    /// The certificate has expired, or is not valid yet.
    Expired,
    /// No trusted authority signed the certificate.
    Issuer,
    /// The client has no certificate, or one that the server rejects.
    ClientCertificate,
    /// Anything else: no TLS, nothing in common.
    Other,
}

/// A failed handshake with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The reason. The text continues "TLS failed:".
    pub text: String,
}

impl Fault {
    /// The fault that an error of rustls stands for.
    pub fn of(error: &Error) -> Fault {
        let (kind, text) = match error {
            Error::InvalidCertificate(invalid) => return Fault::of_certificate(invalid),
            Error::AlertReceived(Alert::CertificateRequired) => {
                (FaultKind::ClientCertificate, "it requires a client certificate".to_string())
            }
            Error::AlertReceived(alert) if is_about_certificate(*alert) => {
                let text = format!("it rejected our certificate (alert {alert:?})");
                (FaultKind::ClientCertificate, text)
            }
            Error::AlertReceived(alert) => {
                (FaultKind::Other, format!("it ended the handshake with the alert {alert:?}"))
            }
            Error::InvalidMessage(_) => (FaultKind::Other, "it does not speak TLS".to_string()),
            Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13) => {
                (FaultKind::Other, "it supports neither TLS 1.2 nor 1.3".to_string())
            }
            other => (FaultKind::Other, other.to_string()),
        };
        Fault { kind, text }
    }

    /// The fault that an I/O error carries, if TLS caused it.
    pub fn within(error: &io::Error) -> Option<Fault> {
        error.get_ref()?.downcast_ref::<Error>().map(Fault::of)
    }

    /// The fault of a handshake that ended with this error.
    pub fn of_handshake(error: &io::Error) -> Fault {
        Fault::within(error).unwrap_or_else(|| Fault {
            kind: FaultKind::Other,
            text: "it closed the connection during the handshake".to_string(),
        })
    }

    fn of_certificate(invalid: &CertificateError) -> Fault {
        let days =
            |from: UnixTime, to: UnixTime| (to.as_secs().saturating_sub(from.as_secs())) / 86_400;
        let (kind, text) = match invalid {
            CertificateError::NotValidForNameContext { expected, presented } => {
                let expected = expected.to_str();
                let text = match names(presented) {
                    None => format!(
                        "its certificate has no names (subjectAltName), so it is not for `{expected}`"
                    ),
                    Some(names) => format!("its certificate is for {names}, not for `{expected}`"),
                };
                (FaultKind::Name, text)
            }
            CertificateError::NotValidForName => {
                (FaultKind::Name, "its certificate is for another name".to_string())
            }
            CertificateError::ExpiredContext { time, not_after } => {
                let text = format!("its certificate expired {} days ago", days(*not_after, *time));
                (FaultKind::Expired, text)
            }
            CertificateError::Expired => {
                (FaultKind::Expired, "its certificate expired".to_string())
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                let days = days(*time, *not_before);
                (FaultKind::Expired, format!("its certificate becomes valid in {days} days"))
            }
            CertificateError::NotValidYet => {
                (FaultKind::Expired, "its certificate is not valid yet".to_string())
            }
            CertificateError::UnknownIssuer => {
                (FaultKind::Issuer, "no trusted authority issued its certificate".to_string())
            }
            other => (FaultKind::Other, format!("its certificate cannot be verified: {other}")),
        };
        Fault { kind, text }
    }
}

/// The most names of a certificate in a text.
const NAMES_SHOWN: usize = 3;

/// The names that a certificate presents, as rustls writes them: `DnsName("a.example")`.
fn names(presented: &[String]) -> Option<String> {
    let bare = |name: &String| {
        let name = name.split_once('(').map_or(name.as_str(), |(_, rest)| rest);
        let name = name.trim_end_matches(')').trim_matches('"');
        name.chars().filter(is_visible).take(100).collect::<String>()
    };
    let shown: Vec<_> =
        presented.iter().take(NAMES_SHOWN).map(|name| format!("`{}`", bare(name))).collect();
    let more = presented.len().saturating_sub(NAMES_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| shown.join(", ") + &more)
}

/// Whether a character may be logged: controls act on terminals, and those of U+202A to U+2069
/// change the order in which the rest of a line is shown.
pub(crate) fn is_visible(character: &char) -> bool {
    let is_of_order = matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !character.is_control() && !is_of_order
}

fn is_about_certificate(alert: Alert) -> bool {
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
    )
}
