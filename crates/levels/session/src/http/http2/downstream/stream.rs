//! A client's stream, which the engine reads and writes as HTTP/1.1.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::server::SendResponse;
use http::HeaderMap;

use super::priority::{Priority, UnderWay, Urgencies};
use super::response::{Asked, read_response};
use crate::http::http2::Message;
use crate::http::http2::incoming::Incoming;
use crate::http::http2::outgoing::{Left, Outgoing, Stopped};
use crate::http::served::ServedStream;
use crate::socket::ClientStream;
use crate::worker::Worker;

/// Heads of interim responses of a request, in bytes. `h2` holds them, whatever the client takes,
/// so that further ones are left out.
const INTERIM_BYTES_MAX: usize = 64 << 10;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The response was handed to `h2` whole.
    Whole,
    /// The engine gave no response, or a part of one.
    Cut,
    /// The client reset the stream, or its connection ended.
    Reset,
}

/// A stream of a client's connection.
pub(super) struct Http2Stream {
    state: RefCell<State>,
    /// The task that runs the engine.
    task: Waker,
    worker: Rc<Worker>,
}

/// The turns in which a response is sent beside others of its connection.
pub(super) struct Turns {
    pub(super) priority: Priority,
    pub(super) all: Rc<Urgencies>,
    /// The priority of the response, and whether its length is known, while none of its body was
    /// sent.
    pub(super) next: Option<(Priority, bool)>,
    /// Its own, while its body is under way.
    pub(super) own: Option<UnderWay>,
}

impl Turns {
    fn begin(&mut self, fields: &HeaderMap, left: &Left) {
        let has_length = match left {
            Left::Length(_) => true,
            Left::Chunked(_) => false,
            // A tunnel may last for as long as its connection.
            Left::Open | Left::Nothing => return,
        };
        self.next = Some((self.priority.changed_by(fields), has_length));
    }

    /// Hands bytes of its body to `h2`.
    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Outgoing,
    ) -> Poll<Result<(), Stopped>> {
        if let Some((priority, has_length)) = self.next.take() {
            // Most responses are sent at once. Such a one holds no other up, and needs no clock.
            let at_once = (!self.all.has_before(priority)).then(|| body.poll_flush(cx, None));
            if at_once.is_none() || !body.has_ended() {
                let begun = UnderWay::begin(&self.all, priority, has_length, Instant::now());
                self.own = Some(begun);
            }
            if let Some(flushed) = at_once {
                return flushed;
            }
        }
        let Some(own) = &self.own else { return body.poll_flush(cx, None) };
        let (now, before) = (Instant::now(), body.sent());
        let flushed = body.poll_flush(cx, own.frame_bytes(now));
        if body.sent() != before {
            own.moved(now);
        }
        flushed
    }
}

struct State {
    /// The request, head included.
    request: Incoming,
    respond: SendResponse<Bytes>,
    asked: Asked,
    /// The body of the final response, once its head was sent.
    response: Option<Outgoing>,
    turns: Turns,
    /// Bytes of the heads of interim responses.
    interim_bytes: usize,
    ended: Option<Ended>,
}

impl Http2Stream {
    /// `task` runs the engine.
    pub(super) fn new(
        request: Incoming,
        respond: SendResponse<Bytes>,
        asked: Asked,
        turns: Turns,
        task: Waker,
        worker: Rc<Worker>,
    ) -> Http2Stream {
        let (response, interim_bytes, ended) = (None, 0, None);
        let state = State { request, respond, asked, response, turns, interim_bytes, ended };
        Http2Stream { state: RefCell::new(state), task, worker }
    }

    /// The engine writes no more: a response without its end is cut.
    pub(super) fn finish(&self) {
        let state = &mut *self.state.borrow_mut();
        if !state.response.as_ref().is_some_and(Outgoing::is_taken) {
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
        self.turns.own = None;
        if ended == Ended::Cut {
            match &mut self.response {
                Some(body) => body.reset(h2::Reason::INTERNAL_ERROR),
                None => self.respond.send_reset(h2::Reason::INTERNAL_ERROR),
            }
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        let Some(body) = &mut self.response else {
            if self.respond.poll_reset(cx).is_ready() {
                self.end(Ended::Reset);
            }
            return;
        };
        if body.poll_reset(cx).is_ready() {
            return self.end(Ended::Reset);
        }
        match self.turns.poll_flush(cx, body) {
            Poll::Ready(Ok(())) if body.has_ended() => self.end(Ended::Whole),
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
            // The end of the client's side of a tunnel.
            Poll::Ready(Ok(false)) if self.response.as_ref().is_some_and(Outgoing::is_open) => {
                Poll::Ready(Ok(false))
            }
            Poll::Ready(Ok(false)) | Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => {
                self.end(Ended::Reset);
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
            taken += self.send_head(&bytes[taken..], worker)?;
        }
        let Some(body) = &mut self.response else { return Ok(taken) };
        loop {
            while taken < bytes.len() && body.has_room() {
                taken += body.take(&bytes[taken..], &worker.buffers).map_err(|_| Ended::Cut)?;
            }
            match self.turns.poll_flush(cx, body) {
                Poll::Ready(Ok(())) if body.has_ended() => {
                    self.end(Ended::Whole);
                    return Ok(taken);
                }
                Poll::Ready(Ok(())) if taken < bytes.len() => {}
                // It may have made room.
                Poll::Pending if taken < bytes.len() && body.has_room() => {}
                Poll::Ready(Ok(())) | Poll::Pending => return Ok(taken),
                Poll::Ready(Err(stopped)) => return Err(stopped.into()),
            }
        }
    }

    /// Sends the head at the start of `bytes`; returns its length.
    fn send_head(&mut self, bytes: &[u8], worker: &Worker) -> Result<usize, Ended> {
        let known = &mut worker.streams.known_fields();
        let head = read_response(bytes, self.asked, known).map_err(|_| Ended::Cut)?;
        if head.response.status().is_informational() {
            self.interim_bytes += head.bytes;
            if self.interim_bytes > INTERIM_BYTES_MAX {
                return Ok(head.bytes);
            }
            let sent = self.respond.send_informational(head.response);
            return sent.map(|()| head.bytes).map_err(|_| Ended::Reset);
        }
        let is_whole = matches!(head.left, Left::Nothing);
        self.turns.begin(head.response.headers(), &head.left);
        let stream = self.respond.send_response(head.response, is_whole);
        let stream = stream.map_err(|_| Ended::Reset)?;
        self.response = Some(Outgoing::new(stream, Message::Response, head.left));
        Ok(head.bytes)
    }
}

impl ServedStream for Http2Stream {
    type Ended = Ended;

    fn ended(&self) -> Option<Ended> {
        self.state.borrow().ended
    }

    fn sent(&self) -> u64 {
        self.state.borrow().response.as_ref().map_or(0, Outgoing::sent)
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<Ended> {
        let state = &mut *self.state.borrow_mut();
        if state.ended.is_none() {
            state.flush(cx);
            state.request.read_ahead(cx);
        }
        state.ended.map_or(Poll::Pending, Poll::Ready)
    }
}

impl ClientStream for Http2Stream {
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
        // `h2` wakes one task for each stream.
        let written = self.poll_write(&mut Context::from_waker(&self.task), bytes);
        self.task.wake_by_ref();
        match written {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn end_tunnel(&self, cx: &mut Context<'_>) {
        let state = &mut *self.state.borrow_mut();
        if let Some(body) = &mut state.response {
            body.finish();
        }
        if state.ended.is_none() {
            state.flush(cx);
        }
    }

    fn cut(&self) {
        self.state.borrow_mut().end(Ended::Cut);
    }

    fn is_cut(&self) -> bool {
        matches!(self.state.borrow().ended, Some(Ended::Cut | Ended::Reset))
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
