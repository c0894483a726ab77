//! A body that the engine writes as HTTP/1.1, on its way over HTTP/2 or HTTP/3.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::SendStream;
use http::HeaderMap;

use super::{Malformed, Message, append};
use crate::buffer::Buffers;
use crate::http::chunk::ChunkReader;

/// Bytes of the payload that are taken ahead of the other side's window.
const AHEAD_BYTES: usize = 16 << 10;

/// Trailer fields of a message.
const TRAILERS_MAX: usize = 64;

/// How much of a body is still to come from the engine.
pub(in crate::http) enum Left {
    Length(u64),
    Chunked(ChunkReader),
    /// Bytes of a tunnel, until [`Outgoing::finish`].
    Open,
    Nothing,
}

/// Why a body cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Stopped {
    /// HTTP/2 and HTTP/3 cannot express it.
    Malformed,
    /// The other side reset the stream, or the connection ended.
    Reset,
}

impl From<Malformed> for Stopped {
    fn from(_: Malformed) -> Self {
        Stopped::Malformed
    }
}

/// The body of a message, as far as it was taken from the engine.
pub(in crate::http) struct Body {
    message: Message,
    left: Left,
    /// Taken, and not sent yet.
    pub(in crate::http) payload: BytesMut,
    /// The lines of the trailers, with the empty one.
    trailers: Vec<u8>,
}

impl Body {
    pub(in crate::http) fn new(message: Message, left: Left) -> Body {
        Body { message, left, payload: BytesMut::new(), trailers: Vec::new() }
    }

    /// Whether the whole body was taken.
    pub(in crate::http) fn is_taken(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    /// Whether more can be taken now.
    pub(in crate::http) fn has_room(&self) -> bool {
        !self.is_taken() && self.payload.len() < AHEAD_BYTES
    }

    /// Whether trailers follow the payload.
    fn has_trailers(&self) -> bool {
        self.trailers.len() > 2
    }

    /// Takes some of the body from the front of `input`; returns how many bytes. `is_first`: none
    /// was sent.
    pub(in crate::http) fn take(
        &mut self,
        input: &[u8],
        is_first: bool,
        buffers: &Buffers,
    ) -> Result<usize, Malformed> {
        let most = input.len().min(AHEAD_BYTES);
        let (count, payload) = match &mut self.left {
            Left::Nothing => return Ok(0),
            Left::Open => (most, &input[..most]),
            Left::Length(left) => {
                let count = most.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
                (count, &input[..count])
            }
            Left::Chunked(reader) => {
                let in_trailers = reader.is_in_trailers();
                let piece = reader.read(&input[..most]).map_err(|_| Malformed)?;
                if in_trailers {
                    self.trailers.extend_from_slice(&input[..piece.consumed]);
                }
                if reader.is_done() {
                    self.left = Left::Nothing;
                }
                (piece.consumed, &input[piece.consumed - piece.payload..piece.consumed])
            }
        };
        // Of others, a slow client could hold many small parts of as many blocks.
        let is_whole = self.is_taken() && is_first && self.payload.is_empty();
        match is_whole {
            true => self.payload = buffers.copy(payload),
            false => self.payload.extend_from_slice(payload),
        }
        Ok(count)
    }

    /// The fields of the trailers.
    pub(in crate::http) fn parse_trailers(&self) -> Result<HeaderMap, Malformed> {
        let mut trailers = HeaderMap::new();
        if !self.has_trailers() {
            return Ok(trailers);
        }
        let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
        let parsed = httparse::parse_headers(&self.trailers, &mut fields);
        let Ok(httparse::Status::Complete((_, fields))) = parsed else { return Err(Malformed) };
        for field in fields.iter().filter(|field| self.message.may_trail(field.name)) {
            append(&mut trailers, field)?;
        }
        Ok(trailers)
    }
}

/// The body of a message on its way to the other side.
pub(super) struct Outgoing {
    stream: SendStream<Bytes>,
    body: Body,
    sent: u64,
    has_ended: bool,
}

impl Outgoing {
    /// The stream has ended already if nothing is left.
    pub(super) fn new(stream: SendStream<Bytes>, message: Message, left: Left) -> Outgoing {
        Outgoing {
            stream,
            has_ended: matches!(left, Left::Nothing),
            body: Body::new(message, left),
            sent: 0,
        }
    }

    /// Bytes of the payload that `h2` was handed.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether `h2` was handed the whole body.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the whole body was taken.
    pub(super) fn is_taken(&self) -> bool {
        self.body.is_taken()
    }

    /// Whether more can be taken now.
    pub(super) fn has_room(&self) -> bool {
        self.body.has_room()
    }

    /// Whether it is a tunnel that has not ended.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.body.left, Left::Open)
    }

    /// Ends a tunnel, behind what was taken.
    pub(super) fn finish(&mut self) {
        if self.is_open() {
            self.body.left = Left::Nothing;
        }
    }

    /// Resets the stream.
    pub(super) fn reset(&mut self, reason: h2::Reason) {
        self.stream.send_reset(reason);
    }

    /// Ready once the other side has reset the stream, or the connection has ended.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(|_| ())
    }

    /// Takes some of the body from the front of `input`; returns how many bytes.
    pub(super) fn take(&mut self, input: &[u8], buffers: &Buffers) -> Result<usize, Malformed> {
        self.body.take(input, self.sent == 0, buffers)
    }

    /// Hands the taken bytes to `h2`, and the end of the body with the last of them. Ready when
    /// none are held back. With `frame_bytes`, hands one frame of that size at a time and lets
    /// other tasks run.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        frame_bytes: Option<usize>,
    ) -> Poll<Result<(), Stopped>> {
        loop {
            let is_read = self.body.is_taken();
            if self.body.payload.is_empty() {
                if is_read && !self.has_ended {
                    self.end()?;
                }
                return Poll::Ready(Ok(()));
            }
            let most = self.body.payload.len().min(frame_bytes.unwrap_or(usize::MAX));
            self.stream.reserve_capacity(most);
            if self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => return Poll::Ready(Err(Stopped::Reset)),
                }
            }
            let count = self.stream.capacity().min(most);
            let bytes = self.body.payload.split_to(count).freeze();
            let is_last = is_read && self.body.payload.is_empty() && !self.body.has_trailers();
            self.sent += count as u64;
            self.stream.send_data(bytes, is_last).map_err(|_| Stopped::Reset)?;
            self.has_ended = is_last;
            if frame_bytes.is_some() && !self.body.payload.is_empty() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Ends the stream behind its payload, with the trailers if there are some.
    fn end(&mut self) -> Result<(), Stopped> {
        self.has_ended = true;
        let trailers = self.body.parse_trailers()?;
        let sent = match trailers.is_empty() {
            true => self.stream.send_data(Bytes::new(), true),
            false => self.stream.send_trailers(trailers),
        };
        sent.map_err(|_| Stopped::Reset)
    }
}
