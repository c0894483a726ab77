//! The header fields that say where a request came from: which of the arrived ones pass, and which
//! are written.

use std::io::Write;
use std::net::IpAddr;

use super::head::Field;
use crate::config::Forwarded;

/// Trust in the origin fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claims {
    /// A peer signed them, except [`Field::OtherOrigin`] and [`Field::XRealIp`]: they pass as they
    /// are, and none is added.
    Signed {
        /// It came encrypted, so that no other sender can have added any.
        encrypted: bool,
    },
    /// A trusted sender wrote them: they pass, and the sender is appended.
    Trusted,
    /// Any client may have written them: they are dropped.
    Untrusted,
}

impl Claims {
    /// Whether fields pass that no marker signs.
    pub(super) fn covers_unsigned(self) -> bool {
        matches!(self, Claims::Trusted | Claims::Signed { encrypted: true })
    }
}

/// The fields that a request arrived with.
#[derive(Default)]
pub(super) struct OriginFields<'a> {
    /// There is at least one.
    pub(super) any: bool,
    // Of several lines the last one is appended to; earlier lines stay before it.
    x_for: Option<&'a [u8]>,
    x_proto: Option<&'a [u8]>,
    x_host: Option<&'a [u8]>,
    forwarded: Option<&'a [u8]>,
    has_real_ip: bool,
    /// A `Forwarded` line ends within a quoted string, which would swallow an element behind it.
    open_quote: bool,
}

impl<'a> OriginFields<'a> {
    pub(super) fn read(&mut self, field: Field, value: &'a [u8]) {
        self.any = true;
        match field {
            Field::XForwardedFor => self.x_for = Some(value),
            Field::XForwardedProto => self.x_proto = Some(value),
            Field::XForwardedHost => self.x_host = Some(value),
            Field::XRealIp => self.has_real_ip = true,
            Field::Forwarded => {
                self.forwarded = Some(value);
                self.open_quote |= leaves_quote_open(value);
            }
            _ => {}
        }
    }

    /// Whether the line of one of these fields goes upstream as it is: not if it is dropped, nor if
    /// it is written anew with the sender appended.
    pub(super) fn keeps(
        &self,
        field: Field,
        value: &[u8],
        claims: Claims,
        wanted: Forwarded,
    ) -> bool {
        let appended_to = match (claims, field) {
            (Claims::Untrusted, _) => return false,
            (_, Field::OtherOrigin | Field::XRealIp) => return claims.covers_unsigned(),
            (Claims::Signed { .. }, _) => return true,
            (Claims::Trusted, Field::Forwarded) if self.open_quote => return false,
            (Claims::Trusted, Field::Forwarded) if wanted.forwarded => self.forwarded,
            (Claims::Trusted, Field::XForwardedFor) if wanted.x_forwarded_for => self.x_for,
            (Claims::Trusted, _) => None,
        };
        appended_to.is_none_or(|last| !std::ptr::eq(last, value))
    }

    /// Writes the `wanted` fields for a request from `client` to `host` by this scheme.
    pub(super) fn write(
        &self,
        claims: Claims,
        wanted: Forwarded,
        client: IpAddr,
        scheme: &'static str,
        host: &[u8],
        out: &mut Vec<u8>,
    ) {
        if matches!(claims, Claims::Signed { .. }) {
            return;
        }
        let is_trusted = claims == Claims::Trusted;
        let client = client.to_canonical();
        if wanted.x_forwarded_for {
            out.extend_from_slice(b"X-Forwarded-For: ");
            write_list_before(self.x_for.filter(|_| is_trusted), out);
            write_ip(client, out);
            out.extend_from_slice(b"\r\n");
        }
        if wanted.x_forwarded_proto && !(is_trusted && self.x_proto.is_some()) {
            out.extend_from_slice(b"X-Forwarded-Proto: ");
            out.extend_from_slice(scheme.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        let has_host = is_trusted && self.x_host.is_some();
        if wanted.x_forwarded_host && !has_host && !host.is_empty() {
            out.extend_from_slice(b"X-Forwarded-Host: ");
            out.extend_from_slice(host);
            out.extend_from_slice(b"\r\n");
        }
        if wanted.x_real_ip && !(is_trusted && self.has_real_ip) {
            out.extend_from_slice(b"X-Real-IP: ");
            write_ip(client, out);
            out.extend_from_slice(b"\r\n");
        }
        if wanted.forwarded {
            out.extend_from_slice(b"Forwarded: ");
            let before = self.forwarded.filter(|_| is_trusted && !self.open_quote);
            write_list_before(before, out);
            write_element(client, scheme, host, out);
        }
    }
}

fn write_list_before(list: Option<&[u8]>, out: &mut Vec<u8>) {
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        out.extend_from_slice(list);
        out.extend_from_slice(b", ");
    }
}

/// Writes an element of `Forwarded` (RFC 7239, section 4) and the line's end.
fn write_element(client: IpAddr, scheme: &str, host: &[u8], out: &mut Vec<u8>) {
    let (open, close): (&[u8], &[u8]) = match client {
        IpAddr::V4(_) => (b"", b""),
        IpAddr::V6(_) => (b"\"[", b"]\""),
    };
    out.extend_from_slice(b"for=");
    out.extend_from_slice(open);
    write_ip(client, out);
    out.extend_from_slice(close);
    if !host.is_empty() {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_ip(ip: IpAddr, out: &mut Vec<u8>) {
    if let IpAddr::V4(ip) = ip {
        for (i, octet) in ip.octets().into_iter().enumerate() {
            if i > 0 {
                out.push(b'.');
            }
            out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
        }
    } else {
        // Writing to a Vec does not fail.
        let _ = write!(out, "{ip}");
    }
}

/// Whether a quoted string (RFC 9110, section 5.6.4) begins in `value` and does not end there.
fn leaves_quote_open(value: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in value {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

/// Whether a field of this name says where a request came from.
pub(super) fn tells_origin(name: &str) -> bool {
    let is = |whole: &str| name.len() == whole.len() && begins(name, whole);
    begins(name, "x-forwarded-") || is("x-real-ip") || is("forwarded")
}

/// Whether a field of this name says which certificate a client has.
pub(super) fn tells_client(name: &str) -> bool {
    begins(name, "x-forwarded-client-")
}

/// Whether the name of a field begins so. CGI and its successors take `_` for `-`, and some every
/// character that is no letter or digit.
fn begins(name: &str, with: &str) -> bool {
    let same = |(byte, wanted): (u8, u8)| {
        byte.eq_ignore_ascii_case(&wanted) || (wanted == b'-' && !byte.is_ascii_alphanumeric())
    };
    name.len() >= with.len() && name.bytes().zip(with.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unterminated_quoted_string_is_detected() {
        for closed in ["", "for=a", "for=\"a\"", r#"for="a\"b""#, r#"for="\\""#, r#"for=a\"#] {
            assert!(!leaves_quote_open(closed.as_bytes()), "{closed}");
        }
        for open in [r#"for="a"#, r#"for="a\""#, r#"""#, r#"for="a";host="b"#] {
            assert!(leaves_quote_open(open.as_bytes()), "{open}");
        }
    }

    #[test]
    fn origin_field_names_match_with_hyphens_or_underscores() {
        for name in ["X-Forwarded-Port", "x_forwarded_for", "X-Real-IP", "X_REAL-ip", "Forwarded"] {
            assert!(tells_origin(name), "{name}");
        }
        for name in ["X-Forward", "X-Forwarded", "X-Real-IP-2", "Forwarded-For", "X", ""] {
            assert!(!tells_origin(name), "{name}");
        }
    }
}
