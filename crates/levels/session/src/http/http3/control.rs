//! Streams of the connection itself, from the client (RFC 9114, section 6.2).
//!
//! `h3` buffers a frame whole, in as many pieces as it came in, and looks at all pieces again for
//! each new one. So it gets frames in one piece here, none that is long, and none to ignore.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use h3::error::Code;
use h3::quic::{self as h3_quic, ConnectionErrorIncoming, StreamErrorIncoming, StreamId};
use quinn::RecvStream;

use super::frames::{HEADER_MAX, code_of, parse_header, parse_varint};
use super::quic::{id_of, read_error};

/// The type of the stream that has frames.
const CONTROL: u64 = 0x0;

/// The last type of a frame that HTTP/3 defines or reserves: `h3` judges those up to it.
const KNOWN_MAX: u64 = 0xd;

/// The longest frame that `h3` gets. SETTINGS of all clients have less than a hundred bytes.
const FRAME_MAX: u64 = 4 << 10;

/// Bytes that a stream of QPACK may have, of which a piece counts as [`PIECE_MIN`] at least. No
/// client has a use for many of them: the dynamic table is empty.
const QPACK_BYTES_MAX: usize = 1 << 20;
const PIECE_MIN: usize = 256;

/// The next part of the stream.
enum State {
    /// The stream's type.
    Type,
    /// A frame's type and length.
    Header,
    /// The rest of a frame for `h3`: its bytes so far, and the number that it lacks.
    Frame(BytesMut, usize),
    /// The rest of a frame of an unknown type, which is ignored.
    Skipped(u64),
    /// Bytes of a stream without frames, of which so many may come.
    Raw(usize),
}

/// A stream of the connection itself, from the client.
pub(super) struct ControlReceive {
    stream: RecvStream,
    /// Read, and not used yet.
    chunk: Bytes,
    /// The start of a type or of a header, which came in pieces.
    started: Vec<u8>,
    state: State,
    /// Whether the first frame was passed on, which must be SETTINGS.
    has_begun: bool,
}

impl ControlReceive {
    pub(super) fn new(stream: RecvStream) -> ControlReceive {
        let (chunk, started) = (Bytes::new(), Vec::with_capacity(HEADER_MAX));
        ControlReceive { stream, chunk, started, state: State::Type, has_begun: false }
    }

    /// Takes what the chunk has of the next part. `None`: the part goes on in the next chunk.
    fn take(&mut self) -> Result<Option<Bytes>, StreamErrorIncoming> {
        match &mut self.state {
            State::Type => {
                self.started.push(self.chunk.get_u8());
                let Some((kind, _)) = parse_varint(&self.started) else { return Ok(None) };
                self.state = match kind {
                    CONTROL => State::Header,
                    _ => State::Raw(QPACK_BYTES_MAX),
                };
                Ok(Some(std::mem::take(&mut self.started).into()))
            }
            State::Header => {
                self.started.push(self.chunk.get_u8());
                let Some((kind, length)) = parse_header(&self.started) else { return Ok(None) };
                let is_known = kind <= KNOWN_MAX || !self.has_begun;
                if is_known && length > FRAME_MAX {
                    return Err(excessive());
                }
                let header = std::mem::take(&mut self.started);
                self.state = match is_known {
                    true => State::Frame(BytesMut::from(&*header), length as usize),
                    false => State::Skipped(length),
                };
                Ok(self.end_frame())
            }
            State::Frame(frame, lacking) => {
                let count = self.chunk.len().min(*lacking);
                frame.extend_from_slice(&self.chunk[..count]);
                self.chunk.advance(count);
                *lacking -= count;
                Ok(self.end_frame())
            }
            State::Skipped(left) => {
                let count = self.chunk.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.chunk.advance(count);
                *left -= count as u64;
                Ok(self.end_frame())
            }
            State::Raw(left) => {
                let chunk = std::mem::take(&mut self.chunk);
                *left = left.checked_sub(chunk.len().max(PIECE_MIN)).ok_or_else(excessive)?;
                Ok(Some(chunk))
            }
        }
    }

    /// Goes on to the next frame once nothing of this one is lacking. Returns it unless it was
    /// skipped.
    fn end_frame(&mut self) -> Option<Bytes> {
        let frame = match &mut self.state {
            State::Frame(frame, 0) => Some(std::mem::take(frame).freeze()),
            State::Skipped(0) => None,
            _ => return None,
        };
        self.has_begun = true;
        self.state = State::Header;
        frame
    }
}

fn excessive() -> StreamErrorIncoming {
    let error = ConnectionErrorIncoming::InternalError("too much control data".to_string());
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: error }
}

impl h3_quic::RecvStream for ControlReceive {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            while self.chunk.has_remaining() {
                if let Some(part) = self.take()? {
                    return Poll::Ready(Ok(Some(part)));
                }
            }
            let chunk = ready!(pin!(self.stream.read_chunk(usize::MAX, true)).poll(cx));
            let Some(chunk) = chunk.map_err(read_error)? else { return Poll::Ready(Ok(None)) };
            self.chunk = chunk.bytes;
        }
    }

    fn stop_sending(&mut self, code: u64) {
        let _ = self.stream.stop(code_of(Code::from(code)));
    }

    fn recv_id(&self) -> StreamId {
        id_of(u64::from(self.stream.id()))
    }
}
