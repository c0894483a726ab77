//! OCSP responses for stapling (RFC 6960, section 4.2; RFC 6066, section 8). Clients verify the
//! signature; this finds the certificate and the times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// The reason why a response is not stapled. The texts continue the name of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OcspError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// It is no response.
    #[error("is not an OCSP response in DER, as `openssl ocsp -respout` writes it")]
    Encoding,
    /// The responder refused to answer.
    #[error("is the refusal of a responder (status {0})")]
    Refusal(u8),
    /// It is about other certificates.
    #[error("is for another certificate")]
    Other,
    /// The certificate is revoked.
    #[error("says that the certificate is revoked")]
    Revoked,
    /// The responder does not know the certificate.
    #[error("says that the responder does not know the certificate")]
    Unknown,
    /// It is not valid yet.
    #[error("is not valid yet; compare the machines' clocks")]
    Early,
    /// It has expired.
    #[error("has expired")]
    Expired,
}

/// The times of a response that says that the certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: SystemTime,
    /// `None`: the responder states no end.
    pub(crate) until: Option<SystemTime>,
}

impl Validity {
    /// The error of a response with these times.
    pub(crate) fn fault(self, now: SystemTime) -> Option<OcspError> {
        match self.until {
            _ if now < self.from => Some(OcspError::Early),
            Some(until) if until < now => Some(OcspError::Expired),
            _ => None,
        }
    }
}

/// Reads the answer about the first certificate of a chain.
pub(crate) fn validity(response: &[u8], chain: &[&[u8]]) -> Result<Validity, OcspError> {
    let (status, basic) = outer(response).ok_or(OcspError::Encoding)?;
    if status != 0 {
        return Err(OcspError::Refusal(status));
    }
    let all = answers(basic.ok_or(OcspError::Encoding)?).ok_or(OcspError::Encoding)?;
    for one in all {
        let answer = Answer::read(one).ok_or(OcspError::Encoding)?;
        if answer.is_for(chain).unwrap_or(false) {
            return match answer.status {
                0 => Ok(answer.validity),
                1 => Err(OcspError::Revoked),
                _ => Err(OcspError::Unknown),
            };
        }
    }
    Err(OcspError::Other)
}

/// An element of DER.
struct Element<'d> {
    tag: u32,
    content: &'d [u8],
    whole: &'d [u8],
}

const ENUMERATED: u32 = 10;
const SEQUENCE: u32 = 16;

/// Takes the next element.
fn next<'d>(input: &mut &'d [u8]) -> Option<Element<'d>> {
    let before = *input;
    let (rest, any) = Any::from_der(before).ok()?;
    *input = rest;
    let content = any.data;
    Some(Element { tag: any.tag().0, content, whole: &before[..before.len() - rest.len()] })
}

/// The content of the next element, which has this tag.
fn tagged<'d>(input: &mut &'d [u8], tag: u32) -> Option<&'d [u8]> {
    next(input).filter(|element| element.tag == tag).map(|element| element.content)
}

/// The status of a response, and its BasicOCSPResponse.
fn outer(mut response: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    let mut within = tagged(&mut response, SEQUENCE)?;
    let status = *tagged(&mut within, ENUMERATED)?.first()?;
    if within.is_empty() {
        return Some((status, None));
    }
    let mut explicit = tagged(&mut within, 0)?;
    let mut bytes = tagged(&mut explicit, SEQUENCE)?;
    let _kind = next(&mut bytes)?;
    Some((status, Some(next(&mut bytes)?.content)))
}

/// The contents of the SingleResponses.
fn answers(mut basic: &[u8]) -> Option<Vec<&[u8]>> {
    let mut within = tagged(&mut basic, SEQUENCE)?;
    let mut data = tagged(&mut within, SEQUENCE)?;
    // The version is 0 if it is stated; the responder's name or key has tag 1 or 2.
    let first = next(&mut data)?;
    if first.tag == 0 {
        next(&mut data)?;
    }
    let _produced = next(&mut data)?;
    let mut all = tagged(&mut data, SEQUENCE)?;
    let mut answers = Vec::new();
    while !all.is_empty() {
        answers.push(tagged(&mut all, SEQUENCE)?);
    }
    Some(answers)
}

/// The answer about one certificate.
struct Answer<'d> {
    hash: &'static Algorithm,
    issuer_name: &'d [u8],
    issuer_key: &'d [u8],
    serial: &'d [u8],
    /// 0: good; 1: revoked; 2: unknown.
    status: u32,
    validity: Validity,
}

impl<'d> Answer<'d> {
    fn read(mut single: &'d [u8]) -> Option<Answer<'d>> {
        let mut id = tagged(&mut single, SEQUENCE)?;
        let mut algorithm = tagged(&mut id, SEQUENCE)?;
        let hash = match next(&mut algorithm)?.content {
            [0x2b, 0x0e, 3, 2, 0x1a] => &SHA1_FOR_LEGACY_USE_ONLY,
            [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => &SHA256,
            _ => return None,
        };
        let issuer_name = next(&mut id)?.content;
        let issuer_key = next(&mut id)?.content;
        let serial = next(&mut id)?.content;
        let status = next(&mut single)?.tag;
        let at = |element: Element<'_>| {
            ASN1Time::from_der(element.whole).ok().map(|(_, at)| time(at.timestamp()))
        };
        let from = at(next(&mut single)?)?;
        let until = match next(&mut single) {
            Some(Element { tag: 0, mut content, .. }) => Some(at(next(&mut content)?)?),
            _ => None,
        };
        let validity = Validity { from, until };
        Some(Answer { hash, issuer_name, issuer_key, serial, status, validity })
    }

    /// Whether it is about the first certificate of a chain. Without the issuer's certificate, its
    /// name decides.
    fn is_for(&self, chain: &[&[u8]]) -> Option<bool> {
        let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
        let name = digest(self.hash, leaf.issuer().as_raw());
        let issuer = chain.get(1).and_then(|der| X509Certificate::from_der(der).ok());
        let is_key = issuer.is_none_or(|(_, issuer)| {
            let key = &issuer.public_key().subject_public_key.data;
            digest(self.hash, key).as_ref() == self.issuer_key
        });
        Some(leaf.raw_serial() == self.serial && name.as_ref() == self.issuer_name && is_key)
    }
}

/// Seconds since 1970 of an ASN.1 time; 1970 for earlier ones.
pub(crate) fn time(unix_seconds: i64) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(unix_seconds).unwrap_or(0));
    UNIX_EPOCH.checked_add(seconds).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
