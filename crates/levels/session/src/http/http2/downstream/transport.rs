//! A client's socket as `h2` reads and writes it.
//!
//! `h2` flushes after every DATA frame of some size, which would make each a TLS record and a
//! system call. So its flush does nothing, and the task of the connection flushes the [`Outbox`]
//! when it has polled `h2`: frames of many streams go together.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::control::ControlFrames;
use crate::buffer::{Buffer, Buffers};
use crate::http::http2::TURN_BYTES;
use crate::socket::Socket;

/// Frames that the kernel has not accepted yet.
pub(super) struct Outbox {
    client: Rc<Socket>,
    buffers: Rc<Buffers>,
    /// Present only while it holds something.
    held: RefCell<Option<Buffer>>,
    /// The kernel had no more to read in this turn of the task, which will be woken.
    is_drained: Cell<bool>,
    /// Bytes that were read in this turn.
    read: Cell<usize>,
    control: RefCell<ControlFrames>,
}

impl Outbox {
    pub(super) fn new(client: Rc<Socket>, buffers: &Rc<Buffers>) -> Rc<Outbox> {
        let buffers = Rc::clone(buffers);
        let (is_drained, read) = (Cell::new(false), Cell::new(0));
        let control = RefCell::new(ControlFrames::new(Instant::now()));
        Rc::new(Outbox { client, buffers, held: RefCell::default(), is_drained, read, control })
    }

    /// Begins a turn of the task: there may be something to read.
    ///
    /// `h2` tries to read each time that it is asked for a stream.
    pub(super) fn begin_turn(&self) {
        self.is_drained.set(false);
        self.read.set(0);
    }

    /// Whether the client loses its connection for frames that belong to no request.
    pub(super) fn is_flooded(&self) -> bool {
        self.control.borrow_mut().are_too_many(Instant::now, self.client.sent())
    }

    /// Ready when the kernel has accepted everything.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held.borrow_mut();
        while let Some(buffer) = &mut *held {
            let sent = ready!(self.client.poll_write(cx, buffer))?;
            buffer.consume(sent);
            if buffer.is_empty() {
                *held = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes some of `bytes`.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.held.borrow().as_ref().is_some_and(Buffer::is_full) {
            ready!(self.poll_flush(cx))?;
        }
        let mut held = self.held.borrow_mut();
        let buffer = held.get_or_insert_with(|| self.buffers.take());
        let space = buffer.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        buffer.filled(count);
        Poll::Ready(Ok(count))
    }
}

pub(super) struct Transport {
    outbox: Rc<Outbox>,
    /// Bytes that were read already.
    input: Option<Buffer>,
}

impl Transport {
    pub(super) fn new(outbox: Rc<Outbox>, input: Option<Buffer>) -> Transport {
        Transport { outbox, input }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Transport { outbox, input: first } = self.get_mut();
        if let Some(input) = first {
            let count = input.len().min(into.remaining());
            into.put_slice(&input[..count]);
            outbox.control.borrow_mut().read(&input[..count]);
            input.consume(count);
            if input.is_empty() {
                *first = None;
            }
            return Poll::Ready(Ok(()));
        }
        if outbox.is_drained.get() {
            return Poll::Pending;
        }
        if outbox.read.get() >= TURN_BYTES {
            outbox.is_drained.set(true);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let space = into.initialize_unfilled();
        match outbox.client.poll_read(cx, space) {
            Poll::Ready(read) => {
                let count = read?;
                outbox.control.borrow_mut().read(&space[..count]);
                outbox.read.set(outbox.read.get() + count);
                into.advance(count);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                outbox.is_drained.set(true);
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.outbox.poll_write(cx, bytes)
    }

    /// Does nothing: see the module.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.outbox.poll_flush(cx))?;
        self.outbox.client.poll_shutdown(cx).map(Ok)
    }
}
