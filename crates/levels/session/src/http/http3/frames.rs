//! Frames of a request (RFC 9114, section 7), in bounded memory.
//!
//! `h3` reads a frame whole before it looks at it, whatever its length, and takes a DATA frame that
//! is cut short for the end of a body. So frames of requests are read here.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use h3::error::Code;
use quinn::{ReadError, RecvStream, VarInt};

/// The longest type and length of a frame.
pub(super) const HEADER_MAX: usize = 16;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;

/// Frames that no request may have: those of the control stream, those that only a server sends,
/// and those that HTTP/2 has and HTTP/3 reserves (section 7.2).
const FORBIDDEN: [u64; 9] = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];

/// The next part of a request.
pub(super) enum Piece {
    /// Some of the payload of a DATA frame.
    Data(Bytes),
    /// A HEADERS frame: the encoded head or trailers.
    Block(Bytes),
    End,
}

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The client reset the stream, or its connection ended.
    Reset,
    /// The whole connection is at fault, for this reason.
    Connection(Code),
    /// The stream is, for this reason.
    Stream(Code),
}

impl Fault {
    /// The fault of a head that is refused with this code.
    pub(super) fn of(code: Code) -> Fault {
        match code {
            Code::H3_MESSAGE_ERROR => Fault::Stream(code),
            code => Fault::Connection(code),
        }
    }
}

enum State {
    /// Between frames, with what was read of the next one's type and length.
    Header([u8; HEADER_MAX], usize),
    /// In a DATA frame, with the bytes that are left of it.
    Data(u64),
    /// In a HEADERS frame.
    Block(usize, BytesMut),
    /// In a frame of an unknown type, which is ignored.
    Skipped(u64),
}

/// The frames of a request.
pub(super) struct Frames {
    stream: RecvStream,
    /// Read, and not used yet.
    chunk: Bytes,
    state: State,
    /// The order of frames (section 4.1): head, DATA, trailers.
    blocks: u32,
    block_bytes_max: usize,
}

impl Frames {
    /// `block_bytes_max`: the largest HEADERS frame.
    pub(super) fn new(stream: RecvStream, block_bytes_max: usize) -> Frames {
        let state = State::Header([0; HEADER_MAX], 0);
        Frames { stream, chunk: Bytes::new(), state, blocks: 0, block_bytes_max }
    }

    /// Asks the client to send no more of the request.
    pub(super) fn stop(&mut self, code: Code) {
        // Fails if all of it has come.
        let _ = self.stream.stop(code_of(code));
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Fault>> {
        loop {
            if let Some(piece) = self.read()? {
                return Poll::Ready(Ok(piece));
            }
            let read = ready!(pin!(self.stream.read_chunk(usize::MAX, true)).poll(cx));
            match read {
                Ok(Some(chunk)) => self.chunk = chunk.bytes,
                Ok(None) => return Poll::Ready(self.end()),
                Err(ReadError::Reset(_) | ReadError::ConnectionLost(_)) | Err(_) => {
                    return Poll::Ready(Err(Fault::Reset));
                }
            }
        }
    }

    fn end(&self) -> Result<Piece, Fault> {
        match self.state {
            State::Header(_, 0) if self.blocks == 0 => {
                Err(Fault::Stream(Code::H3_REQUEST_INCOMPLETE))
            }
            State::Header(_, 0) => Ok(Piece::End),
            // A frame is cut short (section 7.1).
            _ => Err(Fault::Connection(Code::H3_FRAME_ERROR)),
        }
    }

    /// Reads the chunk up to the end of a piece. `None`: all of it was read.
    fn read(&mut self) -> Result<Option<Piece>, Fault> {
        while !self.chunk.is_empty() || matches!(self.state, State::Block(0, _)) {
            match &mut self.state {
                State::Header(bytes, length) => {
                    bytes[*length] = self.chunk.get_u8();
                    *length += 1;
                    if let Some((kind, payload)) = parse_header(&bytes[..*length]) {
                        self.begin(kind, payload)?;
                    }
                }
                State::Data(left) => {
                    let count = take(left, self.chunk.len());
                    let payload = self.chunk.split_to(count);
                    if *left == 0 {
                        self.state = State::Header([0; HEADER_MAX], 0);
                    }
                    return Ok(Some(Piece::Data(payload)));
                }
                State::Block(0, block) => {
                    let block = std::mem::take(block).freeze();
                    self.state = State::Header([0; HEADER_MAX], 0);
                    return Ok(Some(Piece::Block(block)));
                }
                State::Block(left, block) => {
                    let count = self.chunk.len().min(*left);
                    *left -= count;
                    block.extend_from_slice(&self.chunk.split_to(count));
                }
                State::Skipped(left) => {
                    let count = take(left, self.chunk.len());
                    self.chunk.advance(count);
                    if *left == 0 {
                        self.state = State::Header([0; HEADER_MAX], 0);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Begins a frame of this type and length.
    fn begin(&mut self, kind: u64, length: u64) -> Result<(), Fault> {
        let unexpected = Err(Fault::Connection(Code::H3_FRAME_UNEXPECTED));
        self.state = match kind {
            DATA if self.blocks != 1 => return unexpected,
            HEADERS if self.blocks > 1 => return unexpected,
            kind if FORBIDDEN.contains(&kind) => return unexpected,
            HEADERS => {
                self.blocks += 1;
                match usize::try_from(length) {
                    Ok(length) if length <= self.block_bytes_max => {
                        State::Block(length, BytesMut::new())
                    }
                    _ => return Err(Fault::Stream(Code::H3_EXCESSIVE_LOAD)),
                }
            }
            _ if length == 0 => State::Header([0; HEADER_MAX], 0),
            DATA => State::Data(length),
            _ => State::Skipped(length),
        };
        Ok(())
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.stop(Code::H3_NO_ERROR);
    }
}

/// A code of HTTP/3 as QUIC sends it.
pub(super) fn code_of(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

/// Takes up to `most` off `left`.
fn take(left: &mut u64, most: usize) -> usize {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(most);
    *left -= count as u64;
    count
}

/// The type and length of a frame, once both are whole.
pub(super) fn parse_header(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, bytes) = parse_varint(bytes)?;
    let (length, _) = parse_varint(bytes)?;
    Some((kind, length))
}

/// An integer of variable length (RFC 9000, section 16), and what follows it.
pub(super) fn parse_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let more = number[1..].iter();
    Some((more.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), rest))
}

/// Writes the type and length of a DATA frame.
pub(super) fn write_data_header(length: usize, out: &mut Vec<u8>) {
    out.push(DATA as u8);
    // Frames are as large as what was taken of a body at once, which is far below 2^30.
    out.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_length_that_their_first_bits_state() {
        // RFC 9000, appendix A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(parse_varint(bytes), Some((value, &[][..])));
            assert_eq!(parse_varint(&bytes[..bytes.len() - 1]), None);
        }
        let mut out = Vec::new();
        write_data_header(16_384, &mut out);
        assert_eq!(parse_header(&out), Some((DATA, 16_384)));
        assert_eq!(parse_header(&out[..4]), None);
    }
}
