//! The PROXY protocol: a header in front of a connection's bytes with the client's address.
//!
//! # Source
//! haproxy's `doc/proxy-protocol.txt`, sections 2.1 (version 1, text) and 2.2 (version 2, binary).
//! Stricter than required: ports are plain decimals, a version 2 header is at most
//! [`HEADER_BYTES_MAX`] long with its extensions, and those have to fill their space exactly.
//! (The `ppp` crate takes `+80` for a port and CR for a blank.)

mod extensions;

use std::future::poll_fn;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::config::ProxyProtocol;
use crate::deadline::Deadline;
use crate::reason::Reason;
use crate::socket::Socket;
use crate::worker::{Phase, Worker};
pub(crate) use extensions::Extensions;

/// The longest header taken; the format would allow 64 KiB of extensions.
pub(crate) const HEADER_BYTES_MAX: usize = 4096;

/// The longest version 1 header with its CRLF.
const LINE_BYTES_MAX: usize = 107;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_BYTES: usize = 16;

/// Both ends of a connection as a header announces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The client.
    pub(crate) source: SocketAddr,
    /// Where the client connected to.
    pub(crate) destination: SocketAddr,
}

/// A header that was read from a connection.
pub(crate) struct Accepted {
    /// `None`: the sender speaks for itself (`LOCAL`, a health check) or does not know (`UNKNOWN`,
    /// or a family without IP addresses); the connection's own addresses hold.
    pub(crate) announced: Option<Announced>,
    /// The known extensions of a version 2 header.
    pub(crate) extensions: Option<Box<Extensions>>,
    /// Bytes that came behind the header, under [`HEADER_BYTES_MAX`].
    pub(crate) rest: Option<Buffer>,
}

/// Why no header could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The bytes are not a header of either version.
    Malformed,
    /// It did not come in time.
    TimedOut,
    /// The connection ended or failed first.
    Ended,
    /// The process stops.
    ShuttingDown,
}

impl From<Refused> for Reason {
    fn from(refused: Refused) -> Reason {
        match refused {
            Refused::ShuttingDown => Reason::ShuttingDown,
            Refused::Malformed | Refused::TimedOut | Refused::Ended => Reason::ProxyHeader,
        }
    }
}

/// Reads the header that a connection must begin with.
///
/// # Errors
/// [`Refused`]; the connection should be reset.
pub(crate) async fn accept(
    worker: &Worker,
    socket: &Socket,
    deadline: &Deadline,
    within: Duration,
) -> Result<Accepted, Refused> {
    deadline.set(Instant::now(), within);
    let mut buffer = worker.buffers.take();
    let header = poll_fn(|cx| {
        loop {
            if worker.phase.get() == Phase::Cutting {
                return Poll::Ready(Err(Refused::ShuttingDown));
            }
            if deadline.is_past() {
                return Poll::Ready(Err(Refused::TimedOut));
            }
            let room = HEADER_BYTES_MAX - buffer.len();
            let read = ready!(socket.poll_read(cx, &mut buffer.space()[..room]));
            match read {
                Ok(0) | Err(_) => return Poll::Ready(Err(Refused::Ended)),
                Ok(read) => buffer.filled(read),
            }
            match parse(&buffer) {
                Ok(Some(header)) => return Poll::Ready(Ok(header)),
                Ok(None) => {}
                Err(Malformed) => return Poll::Ready(Err(Refused::Malformed)),
            }
        }
    })
    .await;
    deadline.clear();
    let header = header?;
    buffer.consume(header.bytes);
    let rest = (!buffer.is_empty()).then_some(buffer);
    Ok(Accepted { announced: header.announced, extensions: header.extensions, rest })
}

#[derive(Debug, PartialEq, Eq)]
struct Header {
    bytes: usize,
    announced: Option<Announced>,
    extensions: Option<Box<Extensions>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Malformed;

/// Parses the header at the start of `bytes`; `None` while it is not complete. It never wants more
/// than [`HEADER_BYTES_MAX`] bytes.
fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    const PREFIX: &[u8] = b"PROXY ";
    let starts = |with: &[u8]| bytes.iter().zip(with).all(|(byte, wanted)| byte == wanted);
    if starts(&SIGNATURE) {
        parse_binary(bytes)
    } else if starts(PREFIX) {
        parse_line(bytes)
    } else {
        Err(Malformed)
    }
}

fn parse_line(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed) };
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed)?;
    let header = |announced| Ok(Some(Header { bytes: end + 2, announced, extensions: None }));
    let mut words = line.split(' ').skip(1);
    let announced = match words.next() {
        // The rest of the line has no meaning and must be ignored.
        Some("UNKNOWN") => return header(None),
        Some("TCP4") => addresses::<Ipv4Addr>(&mut words),
        Some("TCP6") => addresses::<Ipv6Addr>(&mut words),
        _ => None,
    };
    match announced {
        Some(announced) if words.next().is_none() => header(Some(announced)),
        _ => Err(Malformed),
    }
}

fn addresses<'a, A: FromStr + Into<IpAddr>>(
    words: &mut impl Iterator<Item = &'a str>,
) -> Option<Announced> {
    let source: A = words.next()?.parse().ok()?;
    let destination: A = words.next()?.parse().ok()?;
    Some(Announced {
        source: SocketAddr::new(source.into(), port(words.next()?)?),
        destination: SocketAddr::new(destination.into(), port(words.next()?)?),
    })
}

fn port(word: &str) -> Option<u16> {
    let canonical =
        word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| canonical)
}

fn parse_binary(header: &[u8]) -> Result<Option<Header>, Malformed> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    if header.get(12).is_some_and(|command| ![LOCAL, PROXY].contains(command)) {
        return Err(Malformed);
    }
    let Some((fixed, rest)) = header.split_at_checked(FIXED_BYTES) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if FIXED_BYTES + length > HEADER_BYTES_MAX {
        return Err(Malformed);
    }
    if rest.len() < length {
        return Ok(None);
    }
    let bytes = FIXED_BYTES + length;
    // A local connection's addresses and extensions mean nothing, whatever they are.
    let (announced, extensions) = match fixed[12] {
        LOCAL => (None, None),
        _ => parse_body(fixed[13], &header[..bytes])?,
    };
    Ok(Some(Header { bytes, announced, extensions }))
}

type Body = (Option<Announced>, Option<Box<Extensions>>);

/// Parses what follows the fixed part of `header`.
fn parse_body(family: u8, header: &[u8]) -> Result<Body, Malformed> {
    // High half: unspecified, IPv4, IPv6, unix; low half: unspecified, stream, datagram.
    let address_bytes = match (family >> 4, family & 0xf) {
        (0, 0..=2) => return Ok((None, None)),
        (1, 0..=2) => 12,
        (2, 0..=2) => 36,
        (3, 0..=2) => 216,
        _ => return Err(Malformed),
    };
    let behind = FIXED_BYTES + address_bytes;
    let addresses = header.get(FIXED_BYTES..behind).ok_or(Malformed)?;
    let extensions = extensions::parse(header, behind)?;
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    let announced = match family {
        0x11 => {
            let ip = |at| <[u8; 4]>::try_from(&addresses[at..at + 4]).expect("4 bytes");
            Some(Announced {
                source: (ip(0), port(8)).into(),
                destination: (ip(4), port(10)).into(),
            })
        }
        0x21 => {
            let ip = |at| <[u8; 16]>::try_from(&addresses[at..at + 16]).expect("16 bytes");
            Some(Announced {
                source: (ip(0), port(32)).into(),
                destination: (ip(16), port(34)).into(),
            })
        }
        // A unix socket or datagrams relayed over a stream: no client address that means anything
        // here.
        _ => None,
    };
    Ok((announced, extensions))
}

/// A header for the connection. Ends of different families are announced as unknown, without
/// extensions.
pub(crate) fn write(
    version: ProxyProtocol,
    ends: Announced,
    extensions: &Extensions,
    buffer: &mut Buffer,
) {
    let mut header = Vec::with_capacity(LINE_BYTES_MAX);
    match version {
        ProxyProtocol::V1 => write_line(&mut header, ends).expect("a vector has room"),
        ProxyProtocol::V2 => write_binary(&mut header, ends, extensions),
    }
    // The longest extensions have under 2 KiB, and a buffer has 16.
    buffer.space()[..header.len()].copy_from_slice(&header);
    buffer.filled(header.len());
}

fn write_line(to: &mut Vec<u8>, ends: Announced) -> std::io::Result<()> {
    let (source, destination) = (ends.source, ends.destination);
    let protocol = match (source, destination) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
        (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
        _ => return to.write_all(b"PROXY UNKNOWN\r\n"),
    };
    let (from, to_ip) = (source.ip(), destination.ip());
    write!(to, "PROXY {protocol} {from} {to_ip} {} {}\r\n", source.port(), destination.port())
}

fn write_binary(to: &mut Vec<u8>, ends: Announced, extensions: &Extensions) {
    to.extend(SIGNATURE);
    match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            to.extend([0x21, 0x11, 0, 0]);
            to.extend(source.octets());
            to.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            to.extend([0x21, 0x21, 0, 0]);
            to.extend(source.octets());
            to.extend(destination.octets());
        }
        _ => return to.extend([0x21, 0x00, 0, 0]),
    }
    to.extend(ends.source.port().to_be_bytes());
    to.extend(ends.destination.port().to_be_bytes());
    extensions::write(extensions, to);
    let length = (to.len() - FIXED_BYTES) as u16;
    to[14..16].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests;
