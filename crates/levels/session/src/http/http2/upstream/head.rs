//! The heads of a stream's messages: the engine's request as HTTP/2 has it, the backend's response
//! as HTTP/1.1.

use std::mem::MaybeUninit;

use h2::ext::Protocol;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, Uri, header};

use crate::http::chunk::ChunkReader;
use crate::http::head::{self, Field, Lengths};
use crate::http::http2::incoming::Framing;
use crate::http::http2::outgoing::Left;
use crate::http::http2::websocket::{self, WEBSOCKET};
use crate::http::http2::{FIELDS_ADDED, Malformed, append, check, write_field};
use crate::http::request::HEADERS_PARSED_MAX;

/// A request that the engine wrote.
pub(super) struct RequestHead {
    pub(super) request: Request<()>,
    /// Its body.
    pub(super) left: Left,
    /// Of a request for a WebSocket: the proof for its key, which clients of HTTP/1.1 want.
    pub(super) accept: Option<String>,
}

/// Why a head cannot be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// HTTP/2 cannot express it.
    Malformed,
    /// It asks for a tunnel, and the backend permits none.
    NoTunnels,
}

impl From<Malformed> for Unsent {
    fn from(_: Malformed) -> Self {
        Unsent::Malformed
    }
}

/// Reads a head that the engine wrote.
///
/// Fields of the connection are left out (RFC 9113, section 8.2.2); of `TE` the engine has kept
/// `trailers` alone. `Host` becomes `:authority`. A request for a WebSocket becomes a CONNECT with
/// `:protocol` (RFC 8441, section 4), if the backend `permits_tunnels`.
pub(super) fn read_request(
    head: &[u8],
    scheme: Scheme,
    permits_tunnels: bool,
) -> Result<RequestHead, Unsent> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_PARSED_MAX + FIELDS_ADDED];
    let mut read = httparse::Request::new(&mut []);
    let parsed = read.parse_with_uninit_headers(head, &mut fields);
    if !matches!(parsed, Ok(httparse::Status::Complete(_))) {
        return Err(Unsent::Malformed);
    }
    let method = read.method.ok_or(Malformed)?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Malformed)?;
    let mut lengths = Lengths::default();
    let mut authority: &[u8] = b"";
    let (mut asks_websocket, mut key) = (false, None);
    let mut headers = HeaderMap::with_capacity(read.headers.len());
    for field in read.headers.iter() {
        match Field::of(field.name) {
            Field::Connection | Field::HopByHop | Field::Http2Settings => continue,
            Field::Upgrade => {
                asks_websocket |= names_websocket(field.value);
                continue;
            }
            Field::Host => {
                authority = field.value;
                continue;
            }
            Field::Other if field.name.eq_ignore_ascii_case("sec-websocket-key") => {
                key = Some(field.value);
            }
            Field::TransferEncoding => {
                lengths.transfer_encoding(field.value).map_err(|_| Malformed)?;
                continue;
            }
            Field::ContentLength => lengths.content_length(field.value).map_err(|_| Malformed)?,
            _ => {}
        }
        append(&mut headers, field)?;
    }
    let left = match lengths.framing(false).map_err(|_| Malformed)? {
        None | Some(head::Framing::Length(0)) => Left::Nothing,
        Some(head::Framing::Length(length)) => Left::Length(length),
        Some(head::Framing::Chunked) => Left::Chunked(ChunkReader::new()),
        Some(head::Framing::UntilClose) => return Err(Unsent::Malformed),
    };
    let mut request = Request::new(());
    *request.uri_mut() = uri(read.path.ok_or(Malformed)?, authority, scheme)?;
    // A body would become the begin of the tunnel.
    if !asks_websocket || method != Method::GET || !matches!(left, Left::Nothing) {
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        return Ok(RequestHead { request, left, accept: None });
    }
    if !permits_tunnels || authority.is_empty() {
        return Err(Unsent::NoTunnels);
    }
    headers.remove(header::SEC_WEBSOCKET_KEY);
    headers.remove(header::CONTENT_LENGTH);
    *request.method_mut() = Method::CONNECT;
    *request.headers_mut() = headers;
    request.extensions_mut().insert(Protocol::from_static(WEBSOCKET));
    let accept = websocket::accept(key.unwrap_or_default());
    Ok(RequestHead { request, left: Left::Open, accept: Some(accept) })
}

/// Whether a value of `Upgrade` names WebSocket.
fn names_websocket(value: &[u8]) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// The target as the pseudo-fields have it.
fn uri(target: &str, authority: &[u8], scheme: Scheme) -> Result<Uri, Malformed> {
    let path = PathAndQuery::try_from(target).map_err(|_| Malformed)?;
    if path.as_str() != target {
        // It cut a fragment off.
        return Err(Malformed);
    }
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path);
    // Clients of HTTP/1.0 may name no host; `h2` then adds the scheme alone.
    if !authority.is_empty() {
        parts.authority = Some(Authority::try_from(authority).map_err(|_| Malformed)?);
        parts.scheme = Some(scheme);
    }
    Uri::from_parts(parts).map_err(|_| Malformed)
}

/// Writes the head of a response that opens a WebSocket as HTTP/1.1.
pub(super) fn write_switch<T>(
    response: &Response<T>,
    accept: &str,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    for (name, value) in response.headers() {
        check(value)?;
        match Field::of(name.as_str()) {
            Field::ContentLength => {}
            Field::Other if name == header::SEC_WEBSOCKET_ACCEPT => {}
            field if is_of_connection(field) => return Err(Malformed),
            _ => write_field(name.as_str().as_bytes(), value.as_bytes(), out),
        }
    }
    write_field(b"Connection", b"upgrade", out);
    write_field(b"Upgrade", WEBSOCKET.as_bytes(), out);
    write_field(b"Sec-WebSocket-Accept", accept.as_bytes(), out);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Whether HTTP/2 has no such field (section 8.2.2).
fn is_of_connection(field: Field) -> bool {
    matches!(
        field,
        Field::Connection
            | Field::HopByHop
            | Field::TransferEncoding
            | Field::Upgrade
            | Field::Http2Settings
    )
}

/// Writes the head of a backend's response as HTTP/1.1. `is_whole`: no body follows.
///
/// `h2` has refused upper-case names, control characters, pseudo-fields other than `:status`,
/// fields of the connection and bodies that are not as long as `content-length` says.
pub(super) fn write_response<T>(
    response: &Response<T>,
    is_head: bool,
    is_whole: bool,
    out: &mut Vec<u8>,
) -> Result<Framing, Malformed> {
    let status = response.status();
    // HTTP/2 has no other protocol to switch to (section 8.6).
    if status.as_u16() == 101 {
        return Err(Malformed);
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in response.headers() {
        check(value)?;
        if is_of_connection(Field::of(name.as_str())) {
            return Err(Malformed);
        }
        write_field(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    let has_no_body = is_head || status.is_informational() || matches!(status.as_u16(), 204 | 304);
    let framing = match response.headers().contains_key(header::CONTENT_LENGTH) {
        _ if has_no_body => Framing::Nothing,
        true if is_whole => Framing::Nothing,
        true => Framing::Length,
        false if is_whole => {
            out.extend_from_slice(b"Content-Length: 0\r\n");
            Framing::Nothing
        }
        false => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            Framing::Chunked
        }
    };
    out.extend_from_slice(b"\r\n");
    Ok(framing)
}
