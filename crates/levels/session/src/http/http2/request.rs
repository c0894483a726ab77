//! A stream's request as the HTTP/1.1 engine reads it.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::http::head::Field;
use crate::memory::End;

/// A request that RFC 9113, section 8.1.1, calls malformed, and that `h2` accepts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Writes the head as HTTP/1.1. `has_body`: DATA follows.
///
/// `h2` has refused upper-case names, control characters, repeated, unknown or late pseudo-fields,
/// fields of the connection and `te` other than `trailers`. The engine checks the head again.
pub(super) fn write_head(
    parts: &Parts,
    has_body: bool,
    out: &mut Vec<u8>,
) -> Result<Framing, Malformed> {
    let is_connect = parts.method == Method::CONNECT;
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
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = host(authority, &parts.headers)? {
        write_field(b"Host", host, out);
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

/// A value neither begins nor ends with white space (section 8.2.1).
fn check(value: &HeaderValue) -> Result<(), Malformed> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let value = value.as_bytes();
    match is_space(value.first()) || is_space(value.last()) {
        true => Err(Malformed),
        false => Ok(()),
    }
}

fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether a trailer field of this name passes: not if a proxy or server acts on it.
pub(super) fn may_trail(name: &str) -> bool {
    Field::of(name) == Field::Other
}

/// The framing of a request's body in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Nothing,
    /// `h2` sees to it that as much comes as `content-length` says.
    Length,
    Chunked,
}

/// A request's body on its way to the engine.
pub(super) struct Upload {
    body: RecvStream,
    framing: Framing,
    /// Bytes of the coding, then bytes of the payload, that the engine has not taken.
    coding: Vec<u8>,
    coding_sent: usize,
    payload: Bytes,
    /// Bytes of the payload of which the client may send others when it is taken.
    owed: usize,
    has_chunks: bool,
    is_read: bool,
    is_over: bool,
}

/// The client has reset the stream.
pub(super) struct Reset;

impl Upload {
    pub(super) fn new(body: RecvStream, framing: Framing) -> Upload {
        Upload {
            body,
            framing,
            coding: Vec::new(),
            coding_sent: 0,
            payload: Bytes::new(),
            owed: 0,
            has_chunks: false,
            is_read: framing == Framing::Nothing,
            is_over: framing == Framing::Nothing,
        }
    }

    /// Moves what can be moved.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, to: &End) -> Result<(), Reset> {
        while !self.is_over {
            match self.poll_put(cx, to) {
                Poll::Ready(true) => {}
                // The engine reads no more.
                Poll::Ready(false) => {
                    self.is_over = true;
                    break;
                }
                Poll::Pending => break,
            }
            if self.is_read {
                self.is_over = true;
                break;
            }
            match self.body.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.begin(bytes),
                Poll::Ready(Some(Err(_))) => return Err(Reset),
                Poll::Ready(None) => match self.body.poll_trailers(cx) {
                    Poll::Ready(Ok(trailers)) => self.end(trailers),
                    Poll::Ready(Err(_)) => return Err(Reset),
                    Poll::Pending => break,
                },
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn begin(&mut self, bytes: Bytes) {
        (self.owed, self.payload) = (bytes.len(), bytes);
        if self.framing == Framing::Chunked && !self.payload.is_empty() {
            let before = if std::mem::replace(&mut self.has_chunks, true) { "\r\n" } else { "" };
            self.coding
                .extend_from_slice(format!("{before}{:x}\r\n", self.payload.len()).as_bytes());
        }
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.is_read = true;
        if self.framing != Framing::Chunked {
            // HTTP/1.1 has trailers behind chunks alone.
            return;
        }
        if self.has_chunks {
            self.coding.extend_from_slice(b"\r\n");
        }
        self.coding.extend_from_slice(b"0\r\n");
        let fields = trailers.iter().flatten();
        for (name, value) in fields.filter(|(name, _)| may_trail(name.as_str())) {
            write_field(name.as_str().as_bytes(), value.as_bytes(), &mut self.coding);
        }
        self.coding.extend_from_slice(b"\r\n");
    }

    /// Writes what was read; false if the engine does not take it.
    fn poll_put(&mut self, cx: &mut Context<'_>, to: &End) -> Poll<bool> {
        while self.coding_sent < self.coding.len() {
            match to.poll_write(cx, &self.coding[self.coding_sent..]) {
                Poll::Ready(Ok(count)) => self.coding_sent += count,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.coding.clear();
        self.coding_sent = 0;
        while !self.payload.is_empty() {
            match to.poll_write(cx, &self.payload) {
                Poll::Ready(Ok(count)) => drop(self.payload.split_to(count)),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.owed > 0 {
            // Fails if the stream is over, and then nothing more comes.
            let _ = self.body.flow_control().release_capacity(std::mem::take(&mut self.owed));
        }
        Poll::Ready(true)
    }
}
