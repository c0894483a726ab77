//! The chunked transfer coding, read strictly.

/// A body that is not chunked as RFC 9112 section 7.1 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadChunk;

/// Bytes of one chunk line (size and extensions), or of the trailers, at the most.
const LINE_BYTES_MAX: usize = 4096;
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// Follows a chunked body through its bytes.
///
/// Chunk lines end with CR LF only, sizes are plain hex digits, extensions hold no control
/// characters, trailer lines are not folded: what another reader might take for a different end is
/// refused (request smuggling through lone LF in chunk extensions and the like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkReader {
    state: State,
    /// Bytes of the current line, or of all trailers.
    line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the digits of a size; whether there was one.
    Size {
        size: u64,
        digits: bool,
    },
    /// In the extensions of a chunk line.
    Extension {
        size: u64,
    },
    /// After the CR of a chunk line.
    SizeEnd {
        size: u64,
    },
    /// In the payload; this many bytes are left.
    Data {
        left: u64,
    },
    /// After the payload.
    DataCr,
    DataLf,
    /// At the start of a trailer line.
    TrailerStart,
    /// In the name of a trailer field; whether there was a byte of it.
    TrailerName,
    /// In the value of a trailer field.
    TrailerValue,
    /// After the CR of a trailer line.
    TrailerEnd,
    /// After the CR of the last, empty line.
    LastLf,
    Done,
}

/// Meaning of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes looked at: framing, then `payload` bytes at the end of them.
    pub(crate) consumed: usize,
    /// How many of the consumed bytes, the last ones, are payload.
    pub(crate) payload: usize,
}

impl ChunkReader {
    pub(crate) fn new() -> ChunkReader {
        ChunkReader { state: State::Size { size: 0, digits: false }, line: 0 }
    }

    /// Whether the body has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the next byte is one of the trailers, or of the empty line behind them.
    pub(crate) fn is_in_trailers(&self) -> bool {
        use State::{LastLf, TrailerEnd, TrailerName, TrailerStart, TrailerValue};
        matches!(self.state, TrailerStart | TrailerName | TrailerValue | TrailerEnd | LastLf)
    }

    /// Payload bytes that the current chunk has still to bring.
    pub(crate) fn announced(&self) -> u64 {
        match self.state {
            State::Data { left } => left,
            _ => 0,
        }
    }

    /// Reads on up to the end of one run of payload, the begin of the trailers, the end of the body
    /// or of `bytes`.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Piece, BadChunk> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if let State::Data { left } = self.state {
                let payload = left.min((bytes.len() - at) as u64);
                let left = left - payload;
                self.state = if left == 0 { State::DataCr } else { State::Data { left } };
                return Ok(Piece { consumed: at + payload as usize, payload: payload as usize });
            }
            let ends_chunks = matches!(self.state, State::SizeEnd { size: 0 });
            self.state = self.step(bytes[at])?;
            at += 1;
            if ends_chunks {
                break;
            }
        }
        Ok(Piece { consumed: at, payload: 0 })
    }

    fn step(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.line += 1;
        let limit = match self.state {
            State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerEnd => {
                TRAILER_BYTES_MAX
            }
            _ => LINE_BYTES_MAX,
        };
        if self.line > limit {
            return Err(BadChunk);
        }
        Ok(match (self.state, byte) {
            (State::Size { size, .. }, _) if byte.is_ascii_hexdigit() => {
                // 16^15 bytes a chunk is beyond any real one and leaves no room to overflow.
                if size >> 56 != 0 {
                    return Err(BadChunk);
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                State::Size { size: size << 4 | digit, digits: true }
            }
            (State::Size { size, digits: true }, b'\r') => State::SizeEnd { size },
            (State::Size { size, digits: true }, b';') => State::Extension { size },
            (State::Extension { size }, b'\r') => State::SizeEnd { size },
            (State::Extension { size }, b'\t' | 0x20..=0x7e | 0x80..) => State::Extension { size },
            (State::SizeEnd { size: 0 }, b'\n') => self.new_line(State::TrailerStart),
            (State::SizeEnd { size }, b'\n') => self.new_line(State::Data { left: size }),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => self.new_line(State::Size { size: 0, digits: false }),
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::TrailerStart, _) if is_token(byte) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerName, _) if is_token(byte) => State::TrailerName,
            (State::TrailerValue, b'\r') => State::TrailerEnd,
            (State::TrailerValue, b'\t' | 0x20..=0x7e | 0x80..) => State::TrailerValue,
            (State::TrailerEnd, b'\n') => State::TrailerStart,
            (State::LastLf, b'\n') => State::Done,
            _ => return Err(BadChunk),
        })
    }

    fn new_line(&mut self, next: State) -> State {
        self.line = 0;
        next
    }
}

/// RFC 9110's `tchar`.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body given in pieces; the payload, and how many bytes belonged to it.
    fn read_all(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), BadChunk> {
        let mut reader = ChunkReader::new();
        let (mut payload, mut used) = (Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !reader.is_done() {
                let read = reader.read(rest)?;
                payload.extend_from_slice(&rest[read.consumed - read.payload..read.consumed]);
                used += read.consumed;
                rest = &rest[read.consumed..];
            }
        }
        if reader.is_done() { Ok((payload, used)) } else { Err(BadChunk) }
    }

    const BODY: &[u8] = b"4\r\nWiki\r\n6;a=\"b\"\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nTrailer: x\r\n\r\nGET";

    #[test]
    fn payload_and_end_are_found_at_any_read_boundary() {
        for cut in 0..=BODY.len() {
            let (payload, used) = read_all(&[&BODY[..cut], &BODY[cut..]]).unwrap();
            assert_eq!(payload, b"Wikipedia in \r\n\r\nchunks.");
            assert_eq!(used, BODY.len() - 3);
        }
    }

    #[test]
    fn ambiguous_or_malformed_chunked_bodies_are_refused() {
        let bad: &[&[u8]] = &[
            b"4\nWiki\r\n0\r\n\r\n",
            b"4\r\nWiki\n0\r\n\r\n",
            b"4\r\nWiki0\r\n\r\n",
            b"4;a\nb\r\nWiki\r\n0\r\n\r\n",
            b"4;a\rb\r\nWiki\r\n0\r\n\r\n",
            b"4;a\0b\r\nWiki\r\n0\r\n\r\n",
            b" 4\r\nWiki\r\n0\r\n\r\n",
            b"4 \r\nWiki\r\n0\r\n\r\n",
            b"+4\r\nWiki\r\n0\r\n\r\n",
            b"0x4\r\nWiki\r\n0\r\n\r\n",
            b"-1\r\n\r\n",
            b"\r\n\r\n",
            b";a\r\n\r\n",
            b"100000000000000000\r\n",
            b"0\r\n folded\r\n\r\n",
            b"0\r\nA : b\r\n\r\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\nA: \0\r\n\r\n",
            b"0\r\nA\r\n\r\n",
            b"0\r\n\n",
            b"0\n\r\n",
        ];
        for body in bad {
            assert_eq!(read_all(&[body]), Err(BadChunk), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn endless_lines_and_trailers_are_refused() {
        let long = [b"1;".as_slice(), &vec![b'a'; LINE_BYTES_MAX]].concat();
        assert_eq!(read_all(&[&long]), Err(BadChunk));
        let many = [b"0\r\n".as_slice(), &b"A: b\r\n".repeat(TRAILER_BYTES_MAX / 6 + 1)].concat();
        assert_eq!(read_all(&[&many]), Err(BadChunk));
    }
}
