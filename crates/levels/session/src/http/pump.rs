//! Moving a body from one socket to the other in bounded memory.

use std::task::{Context, Poll, ready};

use super::chunk::{BadChunk, ChunkReader};
use super::head::Framing;
use super::request::RequestHead;
use crate::buffer::{BUFFER_BYTES, Buffer};
use crate::socket::{Socket, poll_fill};
use crate::splice::{Side, SpliceBody};
use crate::worker::Worker;

/// A body of known length with this much left is spliced, not copied.
const SPLICE_FROM_BYTES: u64 = 16 << 10;

/// How a body's bytes change on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Not at all; chunks are checked and passed.
    Same,
    /// Chunks are put around the payload.
    Wrap,
    /// Chunks are taken off.
    Unwrap,
}

impl Shape {
    /// How a response's body changes on its way to the client that made `request`.
    pub(crate) fn of_response(framing: Framing, request: &RequestHead) -> Shape {
        match framing {
            Framing::UntilClose if !request.http10 => Shape::Wrap,
            Framing::Chunked if request.http10 => Shape::Unwrap,
            _ => Shape::Same,
        }
    }
}

/// Why a body could not be moved to its end.
#[derive(Debug)]
pub(crate) enum PumpError {
    /// The sender's connection failed or ended early.
    Source,
    /// The chunks are malformed.
    Malformed,
    /// The payload exceeds the limit.
    TooLarge,
    /// The receiver's connection failed.
    Sink,
}

#[derive(Debug)]
enum Left {
    Length(u64),
    Chunked(ChunkReader),
    UntilClose,
    Nothing,
    /// It failed, and cannot continue, because bytes that were read must not be read again
    /// differently.
    Broken,
}

/// A body on its way.
pub(crate) struct Pump {
    left: Left,
    shape: Shape,
    /// Bytes at the front of the input that were checked and are forwarded unchanged.
    checked: usize,
    /// Reshaped bytes to be written, and how many of them were.
    out: Vec<u8>,
    out_sent: usize,
    payload: u64,
    payload_max: u64,
    /// Bytes of the last read.
    last_read: usize,
    /// Bytes written since the last [`Pump::take_moved`].
    moved: u64,
    /// Bytes that may be written now, if their rate is bounded.
    budget: Option<u64>,
    /// The rest of a long body, moved inside the kernel.
    splice: Option<SpliceBody>,
    /// A copy of the bytes that are written, if it is wanted.
    copy: Option<Box<BodyCopy>>,
}

/// A copy of a body, in bounded memory.
struct BodyCopy {
    /// `None`: it became too large.
    bytes: Option<Vec<u8>>,
    bytes_max: usize,
}

impl BodyCopy {
    fn add(&mut self, written: &[u8]) {
        self.bytes =
            self.bytes.take().filter(|bytes| bytes.len() + written.len() <= self.bytes_max);
        if let Some(bytes) = &mut self.bytes {
            bytes.extend_from_slice(written);
        }
    }
}

impl Pump {
    pub(crate) fn new(framing: Framing, shape: Shape, payload_max: Option<u64>) -> Pump {
        let left = match framing {
            Framing::Length(0) => Left::Nothing,
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunked(ChunkReader::new()),
            Framing::UntilClose => Left::UntilClose,
        };
        Pump {
            left,
            shape,
            checked: 0,
            out: Vec::new(),
            out_sent: 0,
            payload: 0,
            payload_max: payload_max.unwrap_or(u64::MAX),
            last_read: 0,
            moved: 0,
            budget: None,
            splice: None,
            copy: None,
        }
    }

    /// Bounds the bytes that are written from now on. With a bound of 0, the caller has the task
    /// woken.
    pub(crate) fn bound(&mut self, bytes: u64) {
        self.budget = Some(bytes);
    }

    /// How many of `count` bytes may be written now; pending: none.
    fn poll_budget(&self, count: usize) -> Poll<usize> {
        match self.budget {
            None => Poll::Ready(count),
            Some(0) => Poll::Pending,
            Some(budget) => Poll::Ready(count.min(usize::try_from(budget).unwrap_or(count))),
        }
    }

    fn wrote(&mut self, count: usize) {
        self.moved += count as u64;
        self.budget = self.budget.map(|budget| budget.saturating_sub(count as u64));
    }

    /// Copies the bytes that are written from now on, up to the largest `bytes_max` of several
    /// calls, all of them before the first byte is written. For bodies that keep their shape.
    pub(crate) fn copy(&mut self, bytes_max: usize) {
        let new = || Box::new(BodyCopy { bytes: Some(Vec::new()), bytes_max });
        let copy = self.copy.get_or_insert_with(new);
        copy.bytes_max = copy.bytes_max.max(bytes_max);
    }

    /// The copy; `None` if there is none, or it became too large.
    pub(crate) fn copied(&self) -> Option<&[u8]> {
        self.copy.as_ref().and_then(|copy| copy.bytes.as_deref())
    }

    /// Whether bytes that are written have to be copied.
    fn is_copied(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.bytes.is_some())
    }

    /// Whether everything was written.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.left, Left::Nothing) && self.checked == 0 && self.out_sent == self.out.len()
    }

    /// Whether it holds bytes that the receiver has not taken.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.out_sent < self.out.len() || self.splice.as_ref().is_some_and(SpliceBody::holds_bytes)
    }

    /// How much more is known to come.
    pub(crate) fn left_at_least(&self) -> u64 {
        match self.left {
            Left::Length(left) => left,
            _ => 0,
        }
    }

    /// Whether the next read is likely to fill a buffer.
    fn has_much_left(&self) -> bool {
        self.left_at_least() > BUFFER_BYTES as u64 || self.last_read >= BUFFER_BYTES
    }

    /// Bytes written since this was last asked.
    pub(crate) fn take_moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }

    /// Appends to `to` what `input` holds of the body, in its new shape, and drops it from `input`,
    /// which only stays while it holds something.
    pub(crate) fn drain_into(
        &mut self,
        input: &mut Option<Buffer>,
        to: &mut Vec<u8>,
    ) -> Result<(), PumpError> {
        let Some(buffer) = input else { return Ok(()) };
        let result = self.drain(buffer, to);
        if buffer.is_empty() {
            *input = None;
        }
        self.break_off(&result);
        result
    }

    fn drain(&mut self, input: &mut Buffer, to: &mut Vec<u8>) -> Result<(), PumpError> {
        while !input.is_empty() && !matches!(self.left, Left::Nothing) {
            if self.shape == Shape::Same {
                let count = self.check(input)?;
                to.extend_from_slice(&input[..count]);
                input.consume(count);
            } else {
                self.reshape(input)?;
                to.append(&mut self.out);
            }
        }
        Ok(())
    }

    /// Moves what can be moved; ready when the body has been written to its end. `input` holds what
    /// was read and not yet written, and is only there while it holds something.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        input: &mut Option<Buffer>,
        worker: &Worker,
        to: &Socket,
    ) -> Poll<Result<(), PumpError>> {
        let result = ready!(self.poll_on(cx, from, input, worker, to));
        self.break_off(&result);
        Poll::Ready(result)
    }

    /// After an error nothing more is moved. With a copy, a failure of the receiver is no end: the
    /// bytes that it has not taken go to another one.
    fn break_off(&mut self, result: &Result<(), PumpError>) {
        let is_over = match result {
            Ok(()) => false,
            Err(PumpError::Sink) => !self.is_copied(),
            Err(_) => true,
        };
        if is_over {
            self.left = Left::Broken;
        }
    }

    fn poll_on(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        input: &mut Option<Buffer>,
        worker: &Worker,
        to: &Socket,
    ) -> Poll<Result<(), PumpError>> {
        if matches!(self.left, Left::Broken) {
            return Poll::Ready(Err(PumpError::Malformed));
        }
        loop {
            if let Some(splice) = &mut self.splice {
                let before = splice.remaining();
                let result = splice.poll(cx, from, to);
                self.moved += before - splice.remaining();
                ready!(result).map_err(|side| match side {
                    Side::From | Side::Truncated => PumpError::Source,
                    Side::To => PumpError::Sink,
                })?;
                (self.splice, self.left) = (None, Left::Nothing);
            }
            ready!(self.poll_flush(cx, input, to))?;
            match self.left {
                Left::Nothing => return Poll::Ready(Ok(())),
                Left::Length(left @ SPLICE_FROM_BYTES..)
                    if input.is_none()
                        && !self.is_copied()
                        && self.budget.is_none()
                        && from.may_splice()
                        && to.may_splice() =>
                {
                    // Without a pipe it is copied.
                    self.splice = SpliceBody::new(&worker.pipes, left);
                    if self.splice.is_some() {
                        continue;
                    }
                }
                _ => {}
            }
            match input {
                Some(buffer) => {
                    if self.shape == Shape::Same {
                        self.checked = self.check(buffer)?;
                    } else {
                        self.reshape(buffer)?;
                    }
                }
                None => {
                    // The records of one write need one system call.
                    if to.tls().is_some() && self.has_much_left() {
                        *input = Some(worker.buffers.take_large());
                    }
                    let read = ready!(poll_fill(cx, from, input, &worker.buffers));
                    self.last_read = read.map_err(|_| PumpError::Source)?;
                    if self.last_read == 0 {
                        self.end()?;
                    }
                }
            }
        }
    }

    /// Writes bytes that are ready.
    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Option<Buffer>,
        to: &Socket,
    ) -> Poll<Result<(), PumpError>> {
        while self.out_sent < self.out.len() {
            let most = ready!(self.poll_budget(self.out.len() - self.out_sent));
            let sent = ready!(to.poll_write(cx, &self.out[self.out_sent..][..most]));
            let sent = sent.map_err(|_| PumpError::Sink)?;
            self.out_sent += sent;
            self.wrote(sent);
        }
        self.out.clear();
        self.out_sent = 0;
        while let (Some(buffer), 1..) = (input.as_mut(), self.checked) {
            let most = ready!(self.poll_budget(self.checked));
            let sent = ready!(to.poll_write(cx, &buffer[..most]));
            let sent = sent.map_err(|_| PumpError::Sink)?;
            if let Some(copy) = &mut self.copy {
                copy.add(&buffer[..sent]);
            }
            buffer.consume(sent);
            self.checked -= sent;
            self.wrote(sent);
        }
        if input.as_ref().is_some_and(|buffer| buffer.is_empty()) {
            *input = None;
        }
        Poll::Ready(Ok(()))
    }

    /// The source has ended.
    fn end(&mut self) -> Result<(), PumpError> {
        match self.left {
            Left::UntilClose => {
                self.left = Left::Nothing;
                if self.shape == Shape::Wrap {
                    self.out.extend_from_slice(b"0\r\n\r\n");
                }
                Ok(())
            }
            _ => Err(PumpError::Source),
        }
    }

    /// How many of `bytes` belong to the body, which may be passed as they are.
    fn check(&mut self, bytes: &[u8]) -> Result<usize, PumpError> {
        match &mut self.left {
            Left::Nothing => Ok(0),
            Left::Broken => Err(PumpError::Malformed),
            Left::UntilClose => Ok(bytes.len()),
            Left::Length(left) => {
                let count = (bytes.len() as u64).min(*left);
                *left -= count;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
                Ok(count as usize)
            }
            Left::Chunked(reader) => {
                let mut count = 0;
                while count < bytes.len() && !reader.is_done() {
                    let piece = reader.read(&bytes[count..])?;
                    count += piece.consumed;
                    self.payload += piece.payload as u64;
                }
                // Before the body can count as done: what follows it is not to be read any more.
                if self.payload.saturating_add(reader.announced()) > self.payload_max {
                    return Err(PumpError::TooLarge);
                }
                if reader.is_done() {
                    self.left = Left::Nothing;
                }
                Ok(count)
            }
        }
    }

    /// Takes body bytes from `input` into `out`, in their new shape.
    fn reshape(&mut self, input: &mut Buffer) -> Result<(), PumpError> {
        match &mut self.left {
            Left::Chunked(reader) => {
                let piece = reader.read(input)?;
                self.out.extend_from_slice(&input[piece.consumed - piece.payload..piece.consumed]);
                if reader.is_done() {
                    self.left = Left::Nothing;
                }
                input.consume(piece.consumed);
            }
            _ => {
                // A chunk around the bytes that were read. `Wrap` is only used for bodies that end
                // with the connection.
                let size = format!("{:x}\r\n", input.len());
                self.out.extend_from_slice(size.as_bytes());
                self.out.extend_from_slice(input);
                self.out.extend_from_slice(b"\r\n");
                input.consume(input.len());
            }
        }
        Ok(())
    }
}

impl From<BadChunk> for PumpError {
    fn from(_: BadChunk) -> Self {
        PumpError::Malformed
    }
}
