//! The sending side of a stream.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::Code;
use http::Response;
use quinn::{SendStream, StoppedError, VarInt};

use super::frames::{code_of, write_data_header};
use super::quic::Heads;
use crate::http::http2::Malformed;
use crate::http::http2::outgoing::{Body, Stopped};

/// Resolves when the client has everything, has stopped the stream, or is gone.
type Settled = Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>>>>;

/// A response on its way to the client. It is reset if it is dropped before its end.
pub(super) struct Sender {
    stream: SendStream,
    settled: Option<Settled>,
    heads: Rc<RefCell<Heads>>,
    /// Frames without a payload, and headers of frames.
    framing: Vec<u8>,
    framing_sent: usize,
    /// The payload behind them.
    payload: Bytes,
    sent: u64,
    /// The end follows them.
    is_ending: bool,
    has_ended: bool,
}

impl Sender {
    pub(super) fn new(stream: SendStream, heads: Rc<RefCell<Heads>>) -> Sender {
        let settled: Settled = Box::pin(stream.stopped());
        Sender {
            stream,
            settled: Some(settled),
            heads,
            framing: Vec::new(),
            framing_sent: 0,
            payload: Bytes::new(),
            sent: 0,
            is_ending: false,
            has_ended: false,
        }
    }

    /// Bytes of the payload that QUIC was handed.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether QUIC was handed everything that is encoded.
    pub(super) fn is_flushed(&self) -> bool {
        self.framing.is_empty() && self.payload.is_empty()
    }

    /// Whether QUIC was handed the whole response.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ready when the client has the whole response, or takes none of it any more.
    pub(super) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(settled) = &mut self.settled {
            // The result is of no use: the end of the connection is noticed by its task.
            let _ = ready!(settled.as_mut().poll(cx));
            self.settled = None;
        }
        Poll::Ready(())
    }

    /// Adds a head.
    pub(super) fn send_head(&mut self, response: Response<()>) -> Result<(), Malformed> {
        let frame = self.heads.borrow_mut().encode(response)?;
        self.framing.extend_from_slice(&frame);
        Ok(())
    }

    /// Hands the taken bytes of `body` to QUIC, and the end of the stream with the last of them.
    /// Ready when none are held back. `None`: the final head was not sent.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        body: Option<&mut Body>,
    ) -> Poll<Result<(), Stopped>> {
        ready!(self.poll_write(cx))?;
        let Some(body) = body else { return Poll::Ready(Ok(())) };
        loop {
            ready!(self.poll_write(cx))?;
            if self.is_ending {
                // Fails if the client has stopped the stream, which is noticed elsewhere.
                let _ = self.stream.finish();
                self.has_ended = true;
                return Poll::Ready(Ok(()));
            }
            if !body.payload.is_empty() {
                self.payload = body.payload.split().freeze();
                write_data_header(self.payload.len(), &mut self.framing);
                self.sent += self.payload.len() as u64;
                continue;
            }
            if !body.is_taken() {
                return Poll::Ready(Ok(()));
            }
            let trailers = body.parse_trailers()?;
            self.is_ending = true;
            if !trailers.is_empty() {
                self.framing = self.heads.borrow_mut().encode_trailers(trailers)?;
            }
        }
    }

    /// Hands everything that is encoded to QUIC.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        while self.framing_sent < self.framing.len() {
            let written =
                Pin::new(&mut self.stream).poll_write(cx, &self.framing[self.framing_sent..]);
            self.framing_sent += ready!(written).map_err(|_| Stopped::Reset)?;
        }
        self.framing.clear();
        self.framing_sent = 0;
        while !self.payload.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.payload);
            let count = ready!(written).map_err(|_| Stopped::Reset)?;
            drop(self.payload.split_to(count));
        }
        Poll::Ready(Ok(()))
    }

    /// Resets the stream, unless it has ended.
    pub(super) fn reset(&mut self, code: Code) {
        // Fails if it has ended.
        let _ = self.stream.reset(code_of(code));
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.has_ended {
            self.reset(Code::H3_INTERNAL_ERROR);
        }
    }
}
