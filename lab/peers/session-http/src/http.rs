//! The little HTTP/1.1 that the measuring side speaks: fixed GET requests, responses with
//! Content-Length.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustls::ClientConfig;

use crate::tls::Connection;

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Up to and including the empty line.
    pub(crate) length: usize,
    pub(crate) body_length: usize,
}

impl Head {
    /// Reads the head at the start of `bytes`; `None` while it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head>> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text =
            std::str::from_utf8(&bytes[..end]).context("a response head that is not text")?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 "))
            .and_then(|rest| rest.get(..3))
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("no HTTP/1.1 status line in {text:?}"))?;
        let body_length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse().ok())
            .with_context(|| format!("no Content-Length in {text:?}"))?;
        Ok(Some(Head { status, length: end + 4, body_length }))
    }
}

/// The request for `path`, as wrk sends it.
pub(crate) fn request(address: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes()
}

/// The same, after which the connection is closed.
pub(crate) fn closing_request(address: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Sends `request` and reads the whole response.
///
/// # Errors
/// If it is not a 200 with `body_length` bytes of body.
pub(crate) fn exchange(
    stream: &mut (impl Read + Write),
    request: &[u8],
    body_length: usize,
) -> Result<()> {
    stream.write_all(request).context("sending a request")?;
    let mut buffer = [0; 16 << 10];
    let mut filled = 0;
    let head = loop {
        let count = stream.read(&mut buffer[filled..]).context("reading a response head")?;
        ensure!(count > 0, "the connection was closed before a response head was complete");
        filled += count;
        if let Some(head) = Head::parse(&buffer[..filled])? {
            break head;
        }
        ensure!(filled < buffer.len(), "a response head of more than {filled} bytes");
    };
    ensure!(head.status == 200, "status {} instead of 200", head.status);
    ensure!(
        head.body_length == body_length,
        "a body of {} bytes instead of {body_length}",
        head.body_length
    );
    let mut left = body_length.saturating_sub(filled - head.length);
    while left > 0 {
        let count = stream.read(&mut buffer).context("reading a response body")?;
        if count == 0 {
            bail!("the connection was closed {left} bytes before the end of a body");
        }
        left = left.saturating_sub(count);
    }
    Ok(())
}

/// One request on a connection of its own.
pub(crate) fn fetch(
    address: SocketAddr,
    tls: Option<&Arc<ClientConfig>>,
    path: &str,
    body_length: usize,
) -> Result<()> {
    let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = Connection::new(stream, tls)?;
    exchange(&mut stream, &request(address, path), body_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_are_parsed_case_insensitively() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 1024\r\n\r\nbody";
        let head = Head { status: 200, length: 41, body_length: 1024 };
        assert_eq!(Head::parse(bytes).unwrap(), Some(head));
    }

    #[test]
    fn an_incomplete_head_is_no_error() {
        assert_eq!(Head::parse(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n").unwrap(), None);
    }

    #[test]
    fn a_response_without_content_length_is_refused() {
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
