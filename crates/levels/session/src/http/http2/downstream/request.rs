//! A stream's request as the HTTP/1.1 engine reads it.

use h2::ext::Protocol;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::http::head::Field;
use crate::http::http2::incoming::Framing;
use crate::http::http2::websocket::{self, WEBSOCKET};
use crate::http::http2::{Malformed, check, write_field};

/// Whether the request asks for a tunnel of the given protocol, such as a WebSocket.
pub(super) fn is_tunnel(parts: &Parts) -> bool {
    parts.extensions.get::<Protocol>().is_some()
}

/// Whether a request for a tunnel asks for a known protocol.
pub(super) fn is_known_tunnel(parts: &Parts) -> bool {
    parts.extensions.get::<Protocol>().is_none_or(|it| it.as_str() == WEBSOCKET)
}

/// Writes the head as HTTP/1.1. `has_body`: DATA follows. Refuses what RFC 9113, section 8.1.1,
/// calls malformed, and `h2` accepts.
///
/// `h2` has refused upper-case names, control characters, repeated, unknown or late pseudo-fields,
/// fields of the connection and `te` other than `trailers`. The engine checks the head again.
pub(in crate::http) fn write_head(
    parts: &Parts,
    has_body: bool,
    out: &mut Vec<u8>,
) -> Result<Framing, Malformed> {
    let is_tunnel = is_tunnel(parts);
    let is_connect = parts.method == Method::CONNECT && !is_tunnel;
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match parts.uri.path_and_query() {
        Some(path) if !is_connect => path.as_str().as_bytes(),
        _ if is_connect => authority.ok_or(Malformed)?,
        _ => return Err(Malformed),
    };
    let is_path = target.starts_with(b"/") || (target == b"*" && parts.method == Method::OPTIONS);
    if !is_path && !is_connect {
        return Err(Malformed);
    }
    let method = if is_tunnel { &Method::GET } else { &parts.method };
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = host(authority, &parts.headers)? {
        write_field(b"Host", host, out);
    }
    if is_tunnel {
        // HTTP/2 has neither (RFC 8441, section 5); backends of HTTP/1.1 ask for both.
        write_field(b"Connection", b"Upgrade", out);
        write_field(b"Upgrade", WEBSOCKET.as_bytes(), out);
        write_field(b"Sec-WebSocket-Key", websocket::key().as_bytes(), out);
    }
    let mut cookies: Option<Vec<u8>> = None;
    for (name, value) in &parts.headers {
        check(value)?;
        match Field::of(name.as_str()) {
            Field::Host => continue,
            Field::Connection
            | Field::HopByHop
            | Field::TransferEncoding
            | Field::Upgrade
            | Field::Http2Settings => return Err(Malformed),
            _ => {}
        }
        if is_tunnel && (name == header::SEC_WEBSOCKET_KEY || name == header::CONTENT_LENGTH) {
            continue;
        }
        if name == header::COOKIE {
            // A client may split it, so that HPACK compresses it better (section 8.2.3).
            match &mut cookies {
                None => cookies = Some(value.as_bytes().to_vec()),
                Some(before) => {
                    before.extend_from_slice(b"; ");
                    before.extend_from_slice(value.as_bytes());
                }
            }
            continue;
        }
        write_field(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    if let Some(cookies) = cookies {
        write_field(b"cookie", &cookies, out);
    }
    if is_tunnel {
        out.extend_from_slice(b"\r\n");
        // The bytes of the tunnel have no framing.
        return Ok(if has_body { Framing::Length } else { Framing::Nothing });
    }
    let framing = match (has_body, parts.headers.contains_key(header::CONTENT_LENGTH)) {
        (false, _) => Framing::Nothing,
        (true, true) => Framing::Length,
        (true, false) => Framing::Chunked,
    };
    if framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(framing)
}

/// The value of `Host`: the authority, which a `host` field must not contradict.
fn host<'a>(
    authority: Option<&'a [u8]>,
    fields: &'a HeaderMap,
) -> Result<Option<&'a [u8]>, Malformed> {
    let mut hosts = fields.get_all(header::HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err(Malformed);
    }
    match (authority, host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => Err(Malformed),
        (Some(authority), _) => Ok(Some(authority)),
        (None, host) => Ok(host),
    }
}
