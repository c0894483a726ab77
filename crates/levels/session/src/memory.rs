//! A connection between two tasks of one thread, in memory: bounded both ways, without descriptors.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use crate::buffer::{Buffer, Buffers};

/// One end. Dropping it ends its stream; the other end's writes then fail.
pub(crate) struct End {
    incoming: Rc<Pipe>,
    outgoing: Rc<Pipe>,
}

/// The two ends of a new connection. Each direction holds at most a pooled buffer.
pub(crate) fn pair(buffers: &Rc<Buffers>) -> (End, End) {
    let (one, other) = (Pipe::new(buffers), Pipe::new(buffers));
    let first = End { incoming: Rc::clone(&one), outgoing: Rc::clone(&other) };
    (first, End { incoming: other, outgoing: one })
}

impl End {
    /// Reads; 0 is the end of the stream.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_readable(cx));
        let mut state = self.incoming.0.borrow_mut();
        if state.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let Some(held) = &mut state.held else { return Poll::Ready(Ok(0)) };
        let count = held.len().min(into.len());
        into[..count].copy_from_slice(&held[..count]);
        held.consume(count);
        state.has_taken();
        Poll::Ready(Ok(count))
    }

    /// Ready when a read would not wait.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.incoming.0.borrow_mut();
        if state.held.is_some() || state.has_ended || state.is_cut {
            return Poll::Ready(());
        }
        watch(&mut state.reader, cx);
        Poll::Pending
    }

    /// Has the task woken when more can be read than now, or none ever.
    pub(crate) fn watch(&self, cx: &mut Context<'_>) {
        watch(&mut self.incoming.0.borrow_mut().reader, cx);
    }

    /// Calls `read` with the unread bytes, which may consume some.
    pub(crate) fn read_with<T>(&self, read: impl FnOnce(&mut Buffer) -> T) -> Option<T> {
        let mut state = self.incoming.0.borrow_mut();
        let result = read(state.held.as_mut()?);
        state.has_taken();
        Some(result)
    }

    /// Writes some of `bytes`.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                watch(&mut self.outgoing.0.borrow_mut().writer, cx);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Writes some of `bytes`, without a waker.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes, None)
    }

    /// Writes all of `bytes`, however many.
    ///
    /// # Errors
    /// `BrokenPipe` if the other end was dropped.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.outgoing.write(bytes, Some(bytes.len())).map(|_| ())
    }

    /// Ends the stream after the written bytes.
    pub(crate) fn finish(&self) {
        self.outgoing.change(|state| state.has_ended = true);
    }

    /// Ends both directions at once: unread bytes are lost, and the other end learns that.
    pub(crate) fn cut(&self) {
        self.outgoing.change(|state| state.is_cut = true);
        self.incoming.change(|state| state.is_cut = true);
    }

    /// Whether one of the ends has cut the connection.
    pub(crate) fn is_cut(&self) -> bool {
        self.incoming.0.borrow().is_cut
    }

    /// Whether the other end has finished, and everything was read.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.incoming.0.borrow();
        state.held.is_none() && (state.has_ended || state.is_cut)
    }

    /// Whether there is something to read.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.incoming.0.borrow().held.is_some()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.outgoing.change(|state| state.has_ended = true);
        self.incoming.change(|state| state.is_cut = true);
    }
}

/// One direction.
struct Pipe(RefCell<State>);

struct State {
    buffers: Rc<Buffers>,
    /// Bytes that were written and not read; present only while there are some.
    held: Option<Buffer>,
    has_ended: bool,
    is_cut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn new(buffers: &Rc<Buffers>) -> Rc<Pipe> {
        let buffers = Rc::clone(buffers);
        Rc::new(Pipe(RefCell::new(State {
            buffers,
            held: None,
            has_ended: false,
            is_cut: false,
            reader: None,
            writer: None,
        })))
    }

    /// Writes as much as there is room for; makes room for `at_least` bytes.
    fn write(&self, bytes: &[u8], at_least: Option<usize>) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        if state.is_cut || state.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let State { buffers, held, reader, .. } = &mut *state;
        let held = held.get_or_insert_with(|| buffers.take());
        if let Some(count) = at_least {
            held.grow(held.len() + count);
        }
        let space = held.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        held.filled(count);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wake(reader);
        Ok(count)
    }

    /// Changes the state, and wakes both sides.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.borrow_mut();
        change(&mut state);
        if state.is_cut {
            state.held = None;
        }
        let State { reader, writer, .. } = &mut *state;
        wake(reader);
        wake(writer);
    }
}

impl State {
    /// Bytes were read: there may be room again.
    fn has_taken(&mut self) {
        if self.held.as_ref().is_some_and(|held| held.is_empty()) {
            self.held = None;
        }
        wake(&mut self.writer);
    }
}

fn watch(waker: &mut Option<Waker>, cx: &Context<'_>) {
    match waker {
        Some(known) if known.will_wake(cx.waker()) => {}
        _ => *waker = Some(cx.waker().clone()),
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BUFFER_BYTES;

    fn noop() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn a_direction_holds_one_buffer_and_takes_more_when_some_was_read() {
        let (near, far) = pair(&Rc::default());
        let mut cx = noop();
        let bytes = vec![7; BUFFER_BYTES + 5];
        let Poll::Ready(Ok(written)) = near.poll_write(&mut cx, &bytes) else { panic!() };
        assert_eq!(written, BUFFER_BYTES);
        assert!(near.poll_write(&mut cx, b"more").is_pending());
        let mut some = [0; 100];
        assert!(matches!(far.poll_read(&mut cx, &mut some), Poll::Ready(Ok(100))));
        assert!(matches!(near.poll_write(&mut cx, &bytes), Poll::Ready(Ok(100))));
        near.finish();
        let mut read = 0;
        while let Poll::Ready(Ok(count @ 1..)) = far.poll_read(&mut cx, &mut some) {
            read += count;
        }
        assert_eq!(read, BUFFER_BYTES);
        assert!(far.is_over() && !far.is_cut());
    }

    #[test]
    fn a_cut_loses_what_was_not_read_and_a_drop_does_not() {
        let (near, far) = pair(&Rc::default());
        let mut some = [0; 10];
        near.write_all(b"abc").unwrap();
        near.cut();
        assert!(matches!(far.poll_read(&mut noop(), &mut some), Poll::Ready(Err(_))));
        let (near, far) = pair(&Rc::default());
        near.write_all(b"abc").unwrap();
        drop(near);
        assert!(matches!(far.poll_read(&mut noop(), &mut some), Poll::Ready(Ok(3))));
        assert!(matches!(far.poll_read(&mut noop(), &mut some), Poll::Ready(Ok(0))));
        assert!(far.try_write(b"x").is_err());
    }
}
