//! A client's stream, which the engine reads and writes as HTTP/1.1.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h3::error::Code;

use super::body::RequestBody;
use super::frames::Fault;
use super::send::Sender;
use crate::http::http2::Message;
use crate::http::http2::downstream::response::{Asked, read_response};
use crate::http::http2::incoming::Incoming;
use crate::http::http2::outgoing::{Body, Stopped};
use crate::http::served::ServedStream;
use crate::socket::ClientStream;
use crate::worker::Worker;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// QUIC was handed the whole response.
    Whole,
    /// The engine gave no response, or a part of one.
    Cut,
    /// The client reset the stream, or its connection ended.
    Reset,
    /// The request does not keep to RFC 9114.
    Faulty(Fault),
}

/// A stream of a client's connection.
pub(super) struct Http3Stream {
    state: RefCell<State>,
    /// The task that runs the engine.
    task: Waker,
    worker: Rc<Worker>,
}

struct State {
    /// The request, head included.
    request: Incoming<RequestBody>,
    sender: Sender,
    asked: Asked,
    /// The body of the final response, once its head was sent.
    response: Option<Body>,
    ended: Option<Ended>,
}

impl Http3Stream {
    /// `task` runs the engine.
    pub(super) fn new(
        request: Incoming<RequestBody>,
        sender: Sender,
        asked: Asked,
        task: Waker,
        worker: Rc<Worker>,
    ) -> Http3Stream {
        let state = State { request, sender, asked, response: None, ended: None };
        Http3Stream { state: RefCell::new(state), task, worker }
    }

    /// Ready when the client has the whole response, or is gone.
    pub(super) fn poll_settled(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.borrow_mut().sender.poll_settled(cx)
    }

    /// The engine writes no more: a response without its end is cut.
    pub(super) fn finish(&self) {
        let state = &mut *self.state.borrow_mut();
        if !state.response.as_ref().is_some_and(Body::is_taken) {
            state.end(Ended::Cut);
        }
    }
}

impl State {
    /// Notes the end, unless the stream has ended already.
    fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(ended);
        match ended {
            Ended::Whole => {}
            Ended::Cut => self.sender.reset(Code::H3_INTERNAL_ERROR),
            Ended::Faulty(Fault::Stream(code)) => self.sender.reset(code),
            Ended::Reset | Ended::Faulty(_) => self.sender.reset(Code::H3_REQUEST_CANCELLED),
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if !self.sender.has_ended() && self.sender.poll_settled(cx).is_ready() {
            return self.end(Ended::Reset);
        }
        match self.sender.poll_flush(cx, self.response.as_mut()) {
            Poll::Ready(Ok(())) if self.sender.has_ended() => self.end(Ended::Whole),
            Poll::Ready(Ok(())) | Poll::Pending => {}
            Poll::Ready(Err(stopped)) => self.end(stopped.into()),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match self.ended {
            Some(Ended::Whole) => return Poll::Ready(Ok(false)),
            Some(_) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {}
        }
        match self.request.poll_more(cx) {
            Poll::Ready(Ok(true)) => Poll::Ready(Ok(true)),
            Poll::Ready(Ok(false)) | Poll::Pending => Poll::Pending,
            Poll::Ready(Err(fault)) => {
                self.end(match fault {
                    Fault::Reset => Ended::Reset,
                    fault => Ended::Faulty(fault),
                });
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
    }

    /// Takes some of `bytes`; returns how many, which is 0 while the client's window is shut.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        worker: &Worker,
    ) -> Result<usize, Ended> {
        let mut taken = 0;
        while self.response.is_none() && taken < bytes.len() {
            // Interim responses are held back while the client's window is shut.
            self.flush(cx);
            if !self.sender.is_flushed() {
                return self.ended.map_or(Ok(taken), Err);
            }
            taken += self.send_head(&bytes[taken..], worker)?;
        }
        loop {
            if let Some(body) = &mut self.response {
                while taken < bytes.len() && body.has_room() {
                    let is_first = self.sender.sent() == 0;
                    let count = body.take(&bytes[taken..], is_first, &worker.buffers);
                    taken += count.map_err(|_| Ended::Cut)?;
                }
            }
            self.flush(cx);
            match (self.ended, &self.response) {
                (None, Some(body)) if taken < bytes.len() && body.has_room() => {}
                (None | Some(Ended::Whole), _) => return Ok(taken),
                (Some(ended), _) => return Err(ended),
            }
        }
    }

    /// Sends the head at the start of `bytes`; returns its length.
    fn send_head(&mut self, bytes: &[u8], worker: &Worker) -> Result<usize, Ended> {
        let known = &mut worker.streams.known_fields();
        let head = read_response(bytes, self.asked, known).map_err(|_| Ended::Cut)?;
        let is_final = !head.response.status().is_informational();
        self.sender.send_head(head.response).map_err(|_| Ended::Cut)?;
        if is_final {
            self.response = Some(Body::new(Message::Response, head.left));
        }
        Ok(head.bytes)
    }
}

impl ServedStream for Http3Stream {
    type Ended = Ended;

    fn ended(&self) -> Option<Ended> {
        self.state.borrow().ended
    }

    fn sent(&self) -> u64 {
        self.state.borrow().sender.sent()
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<Ended> {
        let state = &mut *self.state.borrow_mut();
        if state.ended.is_none() {
            state.flush(cx);
        }
        state.ended.map_or(Poll::Pending, Poll::Ready)
    }
}

impl ClientStream for Http3Stream {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        state.poll_read(cx).map_ok(|has_more| if has_more { state.request.read(into) } else { 0 })
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.borrow_mut().poll_read(cx).map(|_| ())
    }

    fn holds_input(&self) -> bool {
        !self.state.borrow().request.unread().is_empty()
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if state.ended.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match state.write(cx, bytes, &self.worker) {
            Ok(0) if !bytes.is_empty() => Poll::Pending,
            Ok(taken) => Poll::Ready(Ok(taken)),
            Err(ended) => {
                state.end(ended);
                Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        // QUIC wakes one task for each stream.
        let written = self.poll_write(&mut Context::from_waker(&self.task), bytes);
        self.task.wake_by_ref();
        match written {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Does nothing: no request opens a tunnel.
    fn end_tunnel(&self, _: &mut Context<'_>) {}

    fn cut(&self) {
        self.state.borrow_mut().end(Ended::Cut);
    }

    fn is_cut(&self) -> bool {
        !matches!(self.state.borrow().ended, None | Some(Ended::Whole))
    }
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Malformed => Ended::Cut,
            Stopped::Reset => Ended::Reset,
        }
    }
}
