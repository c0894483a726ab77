//! Extensions (TLVs) of version 2 headers.
//!
//! They are values, as at HAProxy and nginx: the access log has them, and headers to backends pass
//! them on. They choose no route and no scheme.
//!
//! # Source
//! haproxy's `doc/proxy-protocol.txt`, section 2.2.1 and following. Stricter than required: the
//! known extensions come at most once, and texts have no control characters.

use equipoise_tls::common_name;
use rustls::{CipherSuite, ProtocolVersion};

use super::Malformed;
use crate::socket::Socket;

const ALPN: u8 = 0x01;
const AUTHORITY: u8 = 0x02;
const CRC32C: u8 = 0x03;
const UNIQUE_ID: u8 = 0x05;
const TLS: u8 = 0x20;
const TLS_VERSION: u8 = 0x21;
const TLS_COMMON_NAME: u8 = 0x22;
const TLS_CIPHER: u8 = 0x23;

/// Bits of the first byte of the extension [`TLS`]: the client used TLS; it presented a certificate
/// on this connection; in this session.
const USED_TLS: u8 = 1;
const CERTIFICATE_NOW: u8 = 2;
const CERTIFICATE: u8 = 4;

/// Longest text of an extension that is accepted.
const TEXT_BYTES_MAX: usize = 255;
/// Longest unique id, by the specification.
const UNIQUE_ID_BYTES_MAX: usize = 128;

/// The known extensions of a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// The host name that the client asked for, such as its SNI.
    pub(crate) authority: Option<Box<str>>,
    /// The application protocol that was chosen.
    pub(crate) alpn: Option<Box<[u8]>>,
    /// The sender's id of the connection.
    pub(crate) unique_id: Option<Box<[u8]>>,
    /// The client's TLS, which ended at the sender.
    pub(crate) tls: Option<TlsFacts>,
}

/// The client's TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFacts {
    /// Bits such as [`USED_TLS`].
    pub(crate) client: u8,
    /// 0 if the client presented a certificate that was verified.
    pub(crate) verify: u32,
    /// Such as `TLSv1.3`.
    pub(crate) version: Option<Box<str>>,
    /// The common name of the client's certificate.
    pub(crate) common_name: Option<Box<str>>,
    /// The cipher suite, by OpenSSL's name.
    pub(crate) cipher: Option<Box<str>>,
}

impl Extensions {
    fn is_empty(&self) -> bool {
        *self == Extensions::default()
    }

    /// The extensions of a header for this client: those that were received, and facts about TLS
    /// that ended here. `server_name` is the name that the client asked for, if it was read without
    /// ending TLS.
    pub(crate) fn of(
        received: Option<&Extensions>,
        client: &Socket,
        server_name: Option<&str>,
    ) -> Extensions {
        let mut all = received.cloned().unwrap_or_default();
        if let Some(name) = server_name {
            all.authority = Some(name.into());
        }
        let Some(tls) = client.tls() else { return all };
        let (tls, certificate) = (tls.borrow(), client.certificate());
        all.authority = tls.server_name().map(Into::into);
        all.alpn = tls.alpn().map(Into::into);
        let mut bits = USED_TLS;
        if certificate.is_some() {
            bits |= if tls.is_resumed() { CERTIFICATE } else { CERTIFICATE | CERTIFICATE_NOW };
        }
        all.tls = Some(TlsFacts {
            client: bits,
            verify: u32::from(certificate.is_none()),
            version: tls.version().and_then(version_name).map(Into::into),
            common_name: certificate
                .as_ref()
                .and_then(common_name)
                .and_then(|name| text(name.as_bytes()).ok()),
            cipher: tls.cipher().and_then(cipher_name).map(Into::into),
        });
        all
    }
}

/// Reads the extensions of `header`, which begin at `from`. `None`: it has none that are known.
pub(super) fn parse(header: &[u8], from: usize) -> Result<Option<Box<Extensions>>, Malformed> {
    let mut found = Extensions::default();
    let (mut at, mut has_checksum) = (from, false);
    for (kind, value) in each(&header[from..])? {
        at += 3;
        match kind {
            ALPN => once(&mut found.alpn, bounded(value, TEXT_BYTES_MAX)?.into())?,
            AUTHORITY => once(&mut found.authority, text(value)?)?,
            UNIQUE_ID => once(&mut found.unique_id, bounded(value, UNIQUE_ID_BYTES_MAX)?.into())?,
            TLS => once(&mut found.tls, parse_tls(value)?)?,
            CRC32C => {
                let stated = <[u8; 4]>::try_from(value).map_err(|_| Malformed)?;
                let is_right = crc32c(header, at) == u32::from_be_bytes(stated);
                if !is_right || std::mem::replace(&mut has_checksum, true) {
                    return Err(Malformed);
                }
            }
            _ => {}
        }
        at += value.len();
    }
    Ok((!found.is_empty()).then(|| Box::new(found)))
}

/// Kind and value of each extension, which fill their space exactly.
fn each(mut rest: &[u8]) -> Result<Vec<(u8, &[u8])>, Malformed> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let [kind, high, low, after @ ..] = rest else { return Err(Malformed) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, behind) = after.split_at_checked(length).ok_or(Malformed)?;
        all.push((*kind, value));
        rest = behind;
    }
    Ok(all)
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed),
    }
}

fn bounded(value: &[u8], most: usize) -> Result<&[u8], Malformed> {
    if (1..=most).contains(&value.len()) { Ok(value) } else { Err(Malformed) }
}

fn text(value: &[u8]) -> Result<Box<str>, Malformed> {
    let text = std::str::from_utf8(bounded(value, TEXT_BYTES_MAX)?).map_err(|_| Malformed)?;
    if text.chars().any(char::is_control) { Err(Malformed) } else { Ok(text.into()) }
}

fn parse_tls(value: &[u8]) -> Result<TlsFacts, Malformed> {
    let [client, a, b, c, d, rest @ ..] = value else { return Err(Malformed) };
    let verify = u32::from_be_bytes([*a, *b, *c, *d]);
    let mut facts = TlsFacts { client: *client, verify, ..TlsFacts::default() };
    for (kind, value) in each(rest)? {
        let slot = match kind {
            TLS_VERSION => &mut facts.version,
            TLS_COMMON_NAME => &mut facts.common_name,
            TLS_CIPHER => &mut facts.cipher,
            _ => continue,
        };
        once(slot, text(value)?)?;
    }
    Ok(facts)
}

/// Appends the extensions.
pub(super) fn write(all: &Extensions, to: &mut Vec<u8>) {
    let authority = all.authority.as_ref().map(|name| name.as_bytes());
    for (kind, value) in
        [(ALPN, all.alpn.as_deref()), (AUTHORITY, authority), (UNIQUE_ID, all.unique_id.as_deref())]
    {
        if let Some(value) = value {
            write_one(kind, value, to);
        }
    }
    let Some(tls) = &all.tls else { return };
    let mut value = vec![tls.client];
    value.extend(tls.verify.to_be_bytes());
    for (kind, text) in [
        (TLS_VERSION, &tls.version),
        (TLS_COMMON_NAME, &tls.common_name),
        (TLS_CIPHER, &tls.cipher),
    ] {
        if let Some(text) = text {
            write_one(kind, text.as_bytes(), &mut value);
        }
    }
    write_one(TLS, &value, to);
}

/// Values are bounded when they are read, and so have at most 64 KiB.
fn write_one(kind: u8, value: &[u8], to: &mut Vec<u8>) {
    to.push(kind);
    to.extend((value.len() as u16).to_be_bytes());
    to.extend(value);
}

/// CRC32c (RFC 4960, appendix B) of `bytes`, with zeros in the place of the 4 bytes from `zeros`
/// on.
fn crc32c(bytes: &[u8], zeros: usize) -> u32 {
    /// Castagnoli's polynomial, reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let byte = |(place, byte): (usize, &u8)| {
        if (zeros..zeros + 4).contains(&place) { 0 } else { *byte }
    };
    !bytes.iter().enumerate().map(byte).fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 }
        })
    })
}

/// OpenSSL's name of a version.
fn version_name(version: ProtocolVersion) -> Option<&'static str> {
    match version {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

/// OpenSSL's name of a cipher suite.
fn cipher_name(suite: CipherSuite) -> Option<&'static str> {
    use CipherSuite as Suite;
    Some(match suite {
        Suite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        Suite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        Suite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

#[cfg(test)]
pub(super) fn with_checksum(mut header: Vec<u8>) -> Vec<u8> {
    let length = (header.len() - 16 + 7) as u16;
    header[14..16].copy_from_slice(&length.to_be_bytes());
    header.extend([CRC32C, 0, 4, 0, 0, 0, 0]);
    let at = header.len() - 4;
    let sum = crc32c(&header, at);
    header[at..].copy_from_slice(&sum.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720, appendix B.4, and the usual check value.
        assert_eq!(crc32c(b"123456789", 99), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32], 99), 0x8a91_36aa);
        assert_eq!(crc32c(&[7; 32], 28), crc32c(&[[7u8; 28].as_slice(), &[0; 4]].concat(), 99));
    }
}
