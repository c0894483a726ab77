//! A body that arrives over HTTP/2 or HTTP/3, as HTTP/1.1 writes it.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;

use super::{Message, write_field};

/// The framing of a body in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Framing {
    Nothing,
    /// [`Source`] sees to it that as much comes as `content-length` says.
    Length,
    Chunked,
}

/// Where a body comes from.
pub(in crate::http) trait Source {
    type Error;

    /// Reads bytes of the payload; `None` at its end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>>;

    /// Reads the trailers, behind the payload.
    fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, Self::Error>>;

    /// Permits the other side to send this many bytes more.
    fn release(&mut self, count: usize);
}

impl Source for RecvStream {
    type Error = h2::Error;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        RecvStream::poll_data(self, cx)
    }

    fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, h2::Error>> {
        RecvStream::poll_trailers(self, cx)
    }

    fn release(&mut self, count: usize) {
        // Fails if the stream is over, and then nothing more comes.
        let _ = self.flow_control().release_capacity(count);
    }
}

/// Parts of a payload shorter than this are kept as one block: a part costs as much in `h2`,
/// whatever its length.
const SMALL_BYTES: usize = 256;

/// Parts of the payload that the engine has not asked for.
struct Ahead<E> {
    parts: VecDeque<Bytes>,
    /// Small parts behind the others.
    small: BytesMut,
    /// The end of the payload, or its failure.
    end: Option<Result<(), E>>,
}

impl<E> Ahead<E> {
    fn new() -> Ahead<E> {
        Ahead { parts: VecDeque::new(), small: BytesMut::new(), end: None }
    }

    fn push(&mut self, part: Bytes) {
        if part.len() < SMALL_BYTES {
            self.small.extend_from_slice(&part);
            return;
        }
        if !self.small.is_empty() {
            self.parts.push_back(self.small.split().freeze());
        }
        self.parts.push_back(part);
    }

    /// The next part, or the end; `None` if more has to come.
    fn take(&mut self) -> Option<Option<Result<Bytes, E>>> {
        if let Some(part) = self.parts.pop_front() {
            return Some(Some(Ok(part)));
        }
        if !self.small.is_empty() {
            return Some(Some(Ok(self.small.split().freeze())));
        }
        match self.end.take()? {
            Ok(()) => Some(None),
            Err(error) => Some(Some(Err(error))),
        }
    }
}

/// The body of a message on its way to the engine.
pub(in crate::http) struct Incoming<S: Source = RecvStream> {
    body: S,
    /// Present once something was read ahead of the engine.
    ahead: Option<Box<Ahead<S::Error>>>,
    message: Message,
    framing: Framing,
    /// Bytes of head or coding, then bytes of the payload, that were not taken.
    coding: Vec<u8>,
    coding_taken: usize,
    payload: Bytes,
    /// Bytes of the payload of which the other side may send others when it is taken.
    owed: usize,
    /// The last chunk has its payload, and not yet the end of its line.
    is_chunk_open: bool,
    is_read: bool,
}

impl<S: Source> Incoming<S> {
    /// `before`: bytes in front of the body.
    pub(in crate::http) fn new(
        body: S,
        message: Message,
        framing: Framing,
        before: Vec<u8>,
    ) -> Incoming<S> {
        Incoming {
            body,
            ahead: None,
            message,
            framing,
            coding: before,
            coding_taken: 0,
            payload: Bytes::new(),
            owed: 0,
            is_chunk_open: false,
            is_read: framing == Framing::Nothing,
        }
    }

    /// Bytes that have arrived; more may follow.
    pub(in crate::http) fn unread(&self) -> &[u8] {
        match &self.coding[self.coding_taken..] {
            [] => &self.payload,
            coding => coding,
        }
    }

    /// Takes bytes off the front of the unread ones.
    pub(in crate::http) fn consume(&mut self, count: usize) {
        if self.coding_taken < self.coding.len() {
            self.coding_taken += count;
            return;
        }
        drop(self.payload.split_to(count));
        if self.payload.is_empty() && self.owed > 0 {
            self.body.release(std::mem::take(&mut self.owed));
        }
    }

    /// Takes unread bytes into `into`; returns how many.
    pub(in crate::http) fn read(&mut self, into: &mut [u8]) -> usize {
        let unread = self.unread();
        let count = unread.len().min(into.len());
        into[..count].copy_from_slice(&unread[..count]);
        self.consume(count);
        count
    }

    /// Reads more, once nothing is unread. Ready with false at the end of the body.
    pub(in crate::http) fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, S::Error>> {
        while self.unread().is_empty() {
            self.coding_taken = 0;
            self.coding.clear();
            if self.is_read {
                return Poll::Ready(Ok(false));
            }
            match self.poll_data(cx) {
                Poll::Ready(Some(bytes)) => self.begin(bytes?),
                // A client may use a chunk only once its line has ended.
                Poll::Pending if std::mem::take(&mut self.is_chunk_open) => {
                    self.coding.extend_from_slice(b"\r\n");
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    let trailers = ready!(self.body.poll_trailers(cx))?;
                    self.end(trailers);
                }
            }
        }
        Poll::Ready(Ok(true))
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, S::Error>>> {
        match self.ahead.as_mut().and_then(|ahead| ahead.take()) {
            Some(taken) => Poll::Ready(taken),
            None => self.body.poll_data(cx),
        }
    }

    /// Takes what has come while the engine does not read. The other side may send no more in its
    /// place before the engine has read it, so that its window bounds what is held here.
    pub(in crate::http) fn read_ahead(&mut self, cx: &mut Context<'_>) {
        while !self.is_read && self.ahead.as_ref().is_none_or(|ahead| ahead.end.is_none()) {
            let Poll::Ready(read) = self.body.poll_data(cx) else { return };
            let ahead = self.ahead.get_or_insert_with(|| Box::new(Ahead::new()));
            match read {
                Some(Ok(part)) => ahead.push(part),
                Some(Err(error)) => ahead.end = Some(Err(error)),
                None => ahead.end = Some(Ok(())),
            }
        }
    }

    fn begin(&mut self, bytes: Bytes) {
        (self.owed, self.payload) = (bytes.len(), bytes);
        if self.framing == Framing::Chunked && !self.payload.is_empty() {
            let before = if std::mem::replace(&mut self.is_chunk_open, true) { "\r\n" } else { "" };
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
        if std::mem::take(&mut self.is_chunk_open) {
            self.coding.extend_from_slice(b"\r\n");
        }
        self.coding.extend_from_slice(b"0\r\n");
        let fields = trailers.iter().flatten();
        for (name, value) in fields.filter(|(name, _)| self.message.may_trail(name.as_str())) {
            write_field(name.as_str().as_bytes(), value.as_bytes(), &mut self.coding);
        }
        self.coding.extend_from_slice(b"\r\n");
    }
}
