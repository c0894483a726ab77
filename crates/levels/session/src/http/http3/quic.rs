//! A connection of QUIC as `h3` uses it.
//!
//! `h3` reads and writes the streams of the connection itself: settings and GOAWAY. It gets no
//! stream of a request: its [`Request`] is memory, through which it encodes and decodes heads.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self as h3_quic, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use h3::server::RequestStream;
use http::{HeaderMap, Response};
use quinn::{ConnectionError, ReadError, RecvStream, SendStream, WriteError};

use super::control::ControlReceive;
use super::frames::code_of;
use crate::http::http2::Malformed;

/// A future that is polled again until it is ready.
type Kept<T> = Option<Pin<Box<dyn Future<Output = Result<T, ConnectionError>>>>>;

/// A connection.
pub(super) struct Quic {
    connection: quinn::Connection,
    request: Kept<(SendStream, RecvStream)>,
    accepted: Kept<RecvStream>,
    opened: Kept<SendStream>,
}

impl Quic {
    pub(super) fn new(connection: quinn::Connection) -> Quic {
        Quic { connection, request: None, accepted: None, opened: None }
    }
}

fn poll_kept<T, F>(
    kept: &mut Kept<T>,
    cx: &mut Context<'_>,
    make: impl FnOnce() -> F,
) -> Poll<Result<T, ConnectionErrorIncoming>>
where
    F: Future<Output = Result<T, ConnectionError>> + 'static,
{
    let future = kept.get_or_insert_with(|| Box::pin(make()));
    let result = ready!(future.as_mut().poll(cx));
    *kept = None;
    Poll::Ready(result.map_err(connection_error))
}

impl h3_quic::OpenStreams<Bytes> for Quic {
    type BidiStream = Request;
    type SendStream = ControlSend;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Request, StreamErrorIncoming>> {
        let never = "a server opens no stream for a request";
        Poll::Ready(Err(StreamErrorIncoming::Unknown(never.into())))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlSend, StreamErrorIncoming>> {
        let connection = self.connection.clone();
        let opened = poll_kept(&mut self.opened, cx, || async move { connection.open_uni().await });
        opened.map_ok(|stream| ControlSend { stream, writing: None }).map_err(|error| {
            StreamErrorIncoming::ConnectionErrorIncoming { connection_error: error }
        })
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(code_of(code), reason);
    }
}

impl h3_quic::Connection<Bytes> for Quic {
    type RecvStream = ControlReceive;
    type OpenStreams = Quic;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReceive, ConnectionErrorIncoming>> {
        let connection = self.connection.clone();
        poll_kept(&mut self.accepted, cx, || async move { connection.accept_uni().await })
            .map_ok(ControlReceive::new)
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Request, ConnectionErrorIncoming>> {
        let connection = self.connection.clone();
        poll_kept(&mut self.request, cx, || async move { connection.accept_bi().await }).map_ok(
            |(send, receive)| Request {
                id: u64::from(send.id()),
                streams: Some((send, receive)),
                memory: Rc::default(),
            },
        )
    }

    fn opener(&self) -> Quic {
        Quic::new(self.connection.clone())
    }
}

/// A stream of the connection itself, to the client.
pub(super) struct ControlSend {
    stream: SendStream,
    writing: Option<WriteBuf<Bytes>>,
}

impl h3_quic::SendStream<Bytes> for ControlSend {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(writing) = &mut self.writing {
            if !writing.has_remaining() {
                self.writing = None;
                break;
            }
            let written = Pin::new(&mut self.stream).poll_write(cx, writing.chunk());
            writing.advance(ready!(written).map_err(write_error)?);
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        // Fails if the client has stopped the stream.
        let _ = self.stream.finish();
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, code: u64) {
        let _ = self.stream.reset(code_of(Code::from(code)));
    }

    fn send_id(&self) -> StreamId {
        id_of(u64::from(self.stream.id()))
    }
}

/// Bytes between `h3` and this module.
#[derive(Default)]
struct Memory {
    /// For `h3`, then the end.
    input: Option<Bytes>,
    /// From `h3`.
    output: Vec<u8>,
}

/// A request as `h3` sees it.
pub(super) struct Request {
    pub(super) id: u64,
    /// The streams of which it sees nothing.
    streams: Option<(SendStream, RecvStream)>,
    memory: Rc<RefCell<Memory>>,
}

impl Request {
    /// Takes the streams. Also returns the memory, for [`Heads`].
    pub(super) fn take_streams(&mut self) -> Option<(SendStream, RecvStream, HeadMemory)> {
        let (send, receive) = self.streams.take()?;
        Some((send, receive, HeadMemory(Rc::clone(&self.memory))))
    }
}

impl h3_quic::SendStream<Bytes> for Request {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data = data.into();
        let output = &mut self.memory.borrow_mut().output;
        while data.has_remaining() {
            let count = data.chunk().len();
            output.extend_from_slice(data.chunk());
            data.advance(count);
        }
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    /// `h3` refuses a request so. The stream would otherwise end as if it were whole.
    fn reset(&mut self, code: u64) {
        if let Some((send, _)) = &mut self.streams {
            let _ = send.reset(code_of(Code::from(code)));
        }
    }

    fn send_id(&self) -> StreamId {
        id_of(self.id)
    }
}

impl h3_quic::RecvStream for Request {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        Poll::Ready(Ok(self.memory.borrow_mut().input.take()))
    }

    fn stop_sending(&mut self, code: u64) {
        if let Some((_, receive)) = &mut self.streams {
            let _ = receive.stop(code_of(Code::from(code)));
        }
    }

    fn recv_id(&self) -> StreamId {
        id_of(self.id)
    }
}

/// The memory of a request's [`Heads`].
pub(super) struct HeadMemory(Rc<RefCell<Memory>>);

impl HeadMemory {
    /// Frames that `h3` has written.
    pub(super) fn take_output(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().output)
    }
}

/// Encodes and decodes the heads and trailers of a request.
pub(super) struct Heads {
    stream: RequestStream<Request, Bytes>,
    memory: HeadMemory,
}

impl Heads {
    pub(super) fn new(stream: RequestStream<Request, Bytes>, memory: HeadMemory) -> Heads {
        Heads { stream, memory }
    }

    /// The HEADERS frame of a response.
    pub(super) fn encode(&mut self, response: Response<()>) -> Result<Vec<u8>, Malformed> {
        now(self.stream.send_response(response)).ok_or(Malformed)?.map_err(|_| Malformed)?;
        Ok(self.memory.take_output())
    }

    /// The HEADERS frame of trailers.
    pub(super) fn encode_trailers(&mut self, trailers: HeaderMap) -> Result<Vec<u8>, Malformed> {
        now(self.stream.send_trailers(trailers)).ok_or(Malformed)?.map_err(|_| Malformed)?;
        Ok(self.memory.take_output())
    }

    /// Decodes the content of a HEADERS frame behind the body.
    pub(super) fn decode_trailers(&mut self, block: &[u8]) -> Result<HeaderMap, Malformed> {
        let mut frame = vec![1];
        frame.extend_from_slice(&(block.len() as u64 | 0xc << 60).to_be_bytes());
        frame.extend_from_slice(block);
        self.memory.0.borrow_mut().input = Some(frame.into());
        let mut cx = Context::from_waker(Waker::noop());
        if !matches!(self.stream.poll_recv_data(&mut cx), Poll::Ready(Ok(None))) {
            return Err(Malformed);
        }
        match self.stream.poll_recv_trailers(&mut cx) {
            Poll::Ready(Ok(Some(trailers))) => Ok(trailers),
            Poll::Ready(_) | Poll::Pending => Err(Malformed),
        }
    }
}

/// The output of a future that waits for nothing.
pub(super) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub(super) fn id_of(id: u64) -> StreamId {
    StreamId::try_from(id).unwrap_or_else(|_| unreachable!("QUIC has no larger ids"))
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

pub(super) fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into() },
        ReadError::ConnectionLost(error) => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        },
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => {
            StreamErrorIncoming::StreamTerminated { error_code: code.into() }
        }
        WriteError::ConnectionLost(error) => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        },
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}
