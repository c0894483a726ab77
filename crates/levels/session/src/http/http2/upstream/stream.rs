//! A request's stream, which the engine reads and writes as HTTP/1.1.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::Method;

use super::connection::Place;
use super::head::{RequestHead, Unsent, read_request, write_response, write_switch};
use crate::buffer::Buffers;
use crate::http::head::HeadScanner;
use crate::http::http2::incoming::{Framing, Incoming};
use crate::http::http2::outgoing::{Left, Outgoing, Stopped};
use crate::http::http2::{Malformed, Message};
use crate::socket::BackendStream;

/// A stream of a connection to a backend. Dropping it before its response has ended resets it.
pub(super) struct Http2Stream {
    place: Place,
    state: RefCell<State>,
    is_unprocessed: Cell<bool>,
    buffers: Rc<Buffers>,
}

struct State {
    send: SendRequest<Bytes>,
    /// The body of the request, until it was sent.
    request: Option<Outgoing>,
    response: Answer,
    is_head: bool,
    /// Of a request for a WebSocket: the proof for its key.
    accept: Option<String>,
    /// The head of a response, and how much of it was read.
    head: Vec<u8>,
    head_read: usize,
    /// When the request was sent, and how many bytes had come over the connection then.
    sent: Option<(Instant, Option<u64>)>,
}

enum Answer {
    /// The request was not sent.
    NotAsked,
    /// It could not be sent.
    Lost,
    Awaited(ResponseFuture),
    Begun(Incoming),
    Over,
}

impl Http2Stream {
    pub(super) fn new(send: SendRequest<Bytes>, place: Place, buffers: Rc<Buffers>) -> Http2Stream {
        let state = State {
            send,
            request: None,
            response: Answer::NotAsked,
            is_head: false,
            accept: None,
            head: Vec::new(),
            head_read: 0,
            sent: None,
        };
        let is_unprocessed = Cell::new(false);
        Http2Stream { place, state: RefCell::new(state), is_unprocessed, buffers }
    }

    /// Sends the head at the start of `bytes`; returns its length.
    fn begin(&self, state: &mut State, bytes: &[u8]) -> io::Result<usize> {
        let end = HeadScanner::default().find_end(bytes).map_err(|_| Malformed)?;
        let end = end.ok_or(Malformed)?;
        let permits_tunnels = state.send.is_extended_connect_protocol_enabled();
        let read = read_request(&bytes[..end], self.place.scheme(), permits_tunnels);
        let RequestHead { request, left, accept } = read.map_err(|unsent| match unsent {
            Unsent::Malformed => io::ErrorKind::InvalidInput,
            Unsent::NoTunnels => io::ErrorKind::Unsupported,
        })?;
        state.accept = accept;
        state.is_head = request.method() == Method::HEAD;
        let is_whole = matches!(left, Left::Nothing);
        state.sent = Some((Instant::now(), self.place.received()));
        let (response, stream) = match state.send.send_request(request, is_whole) {
            Ok(begun) => begun,
            Err(error) => {
                state.response = Answer::Lost;
                self.is_unprocessed.set(true);
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, error));
            }
        };
        state.response = Answer::Awaited(response);
        state.request = (!is_whole).then(|| Outgoing::new(stream, Message::Request, left));
        Ok(end)
    }

    /// Reads a head, of an interim response or of the final one.
    fn poll_head(&self, cx: &mut Context<'_>, state: &mut State) -> Poll<io::Result<()>> {
        let Answer::Awaited(response) = &mut state.response else { return Poll::Ready(Ok(())) };
        state.head_read = 0;
        state.head.clear();
        if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
            let interim = interim.map_err(|error| self.failed(error))?;
            write_response(&interim, state.is_head, true, &mut state.head).map_err(bad_response)?;
            return Poll::Ready(Ok(()));
        }
        let response = ready!(Pin::new(response).poll(cx)).map_err(|error| self.failed(error))?;
        self.place.has_answered();
        let framing = match state.accept.take() {
            Some(accept) if response.status().is_success() => {
                // The bytes of a tunnel have no framing.
                write_switch(&response, &accept, &mut state.head).map(|()| Framing::Length)
            }
            accept => {
                if let (Some(_), Some(request)) = (accept, &mut state.request) {
                    request.finish();
                }
                let is_whole = response.body().is_end_stream();
                write_response(&response, state.is_head, is_whole, &mut state.head)
            }
        };
        let body = response.into_body();
        let framing = framing.map_err(bad_response)?;
        let body = Incoming::new(body, Message::Response, framing, Vec::new());
        state.response = Answer::Begun(body);
        Poll::Ready(Ok(()))
    }

    /// The error of a stream that `h2` has ended.
    fn failed(&self, error: h2::Error) -> io::Error {
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        // Of streams that a GOAWAY does not cover alone: others end in another way.
        if error.is_remote() && (is_refused || error.is_go_away()) {
            self.is_unprocessed.set(true);
        }
        let kind = match error.is_library() {
            true => io::ErrorKind::InvalidData,
            false => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

impl BackendStream for Http2Stream {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if let Some(request) = &mut state.request
            && let Poll::Ready(flushed) = request.poll_flush(cx, None)
            && (flushed.is_err() || request.has_ended())
        {
            state.request = None;
        }
        loop {
            let head = &state.head[state.head_read..];
            if !head.is_empty() {
                let count = copy(head, into);
                state.head_read += count;
                return Poll::Ready(Ok(count));
            }
            match &mut state.response {
                Answer::NotAsked => return Poll::Pending,
                Answer::Lost => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                Answer::Awaited(_) => ready!(self.poll_head(cx, state))?,
                Answer::Begun(body) => {
                    if ready!(body.poll_more(cx)).map_err(|error| self.failed(error))? {
                        let count = copy(body.unread(), into);
                        body.consume(count);
                        return Poll::Ready(Ok(count));
                    }
                    state.response = Answer::Over;
                }
                Answer::Over => return Poll::Ready(Ok(0)),
            }
        }
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_read(cx, &mut []).map(|_| ())
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if matches!(state.response, Answer::NotAsked) {
            return Poll::Ready(self.begin(state, bytes));
        }
        let Some(request) = &mut state.request else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        loop {
            if request.has_room() {
                let taken = request.take(bytes, &self.buffers)?;
                // The rest is sent while the response is read.
                return match request.poll_flush(cx, None) {
                    Poll::Ready(Err(stopped)) => Poll::Ready(Err(stopped.into())),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
                };
            }
            ready!(request.poll_flush(cx, None))?;
            if request.has_ended() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
    }

    fn poll_end_tunnel(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        let Some(request) = &mut state.request else { return Poll::Ready(()) };
        request.finish();
        // An error is one of reading, too.
        let _ = ready!(request.poll_flush(cx, None));
        state.request = None;
        Poll::Ready(())
    }

    fn is_unprocessed(&self) -> bool {
        self.is_unprocessed.get()
    }

    fn read_ahead(&self, cx: &mut Context<'_>) {
        match &mut self.state.borrow_mut().response {
            Answer::Begun(body) => body.read_ahead(cx),
            // The client does not take the one before.
            Answer::Awaited(response) => {
                while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {}
            }
            Answer::NotAsked | Answer::Lost | Answer::Over => {}
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let (Answer::Awaited(_), Some((sent, received))) = (&state.response, state.sent) {
            self.place.gave_up(sent, received);
        }
    }
}

fn copy(from: &[u8], into: &mut [u8]) -> usize {
    let count = from.len().min(into.len());
    into[..count].copy_from_slice(&from[..count]);
    count
}

fn bad_response(_: Malformed) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> Self {
        io::ErrorKind::InvalidInput.into()
    }
}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Malformed => io::ErrorKind::InvalidInput.into(),
            Stopped::Reset => io::ErrorKind::BrokenPipe.into(),
        }
    }
}
