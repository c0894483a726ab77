//! HTTP/2 (RFC 9113), with HTTP/1.1 as the form that the engine reads and writes.
//!
//! [`downstream`] serves each stream of a client as a client connection of the engine;
//! [`upstream`] gives the engine streams to backends as sessions. Both move bodies by [`incoming`]
//! and [`outgoing`]. The `h2` crate has frames, HPACK, flow control and the states of streams.

pub(super) mod downstream;
pub(super) mod incoming;
pub(super) mod outgoing;
pub(crate) mod upstream;
mod websocket;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::head::Field;

/// Bytes that the other side may send on a stream ahead of what was taken.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;

/// Bytes of a body that are handed to `h2` ahead of what the other side has taken.
const SEND_BYTES_MAX: usize = 64 << 10;

/// Bytes that `h2` reads in a turn of a connection's task. The tasks of streams take what has come
/// between two turns.
pub(super) const TURN_BYTES: usize = 64 << 10;

/// Bytes by which the DATA frames in `h2` may be shorter than 256, in all. A turn cannot bring more
/// than a third of it.
const DATA_FRAME_BUDGET: usize = 4 << 20;

/// Header fields that the engine may add to those that it received.
const FIELDS_ADDED: usize = 16;

/// Something that the other protocol cannot express.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Writes a line of HTTP/1.1.
fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Adds a field of HTTP/1.1 to those of HTTP/2.
fn append(to: &mut HeaderMap, field: &httparse::Header<'_>) -> Result<(), Malformed> {
    let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
    // A copy: `h2` keeps some values in its table of header fields, where a part of a larger block
    // would keep the whole of it.
    let value = HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?;
    to.try_append(name, value).map(|_| ()).map_err(|_| Malformed)
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

/// The message that a body belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Request,
    Response,
}

impl Message {
    /// Whether a trailer field of this name passes: not if a proxy or server acts on it.
    fn may_trail(self, name: &str) -> bool {
        match Field::of(name) {
            Field::Other => true,
            // As header fields of responses do: no application takes them for another.
            Field::Underscored => self == Message::Response,
            _ => false,
        }
    }
}
