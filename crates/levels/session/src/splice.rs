//! Moving bytes from one socket to another inside the kernel: `splice(2)` through a pipe.
//!
//! A pipe is always filled from empty and emptied before it is filled again, so that `EAGAIN` while
//! filling has one meaning: the socket has nothing. (With bytes in the pipe it could also mean that
//! the pipe is full, and the socket's readiness would be unknown.)
//!
//! Writing to a socket without a peer raises `SIGPIPE` from `splice`, which has no flag against it;
//! Rust's runtime ignores the signal.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::socket::Socket;

/// Size of a pipe. It counts against `/proc/sys/fs/pipe-user-pages-soft` (64 MiB per user by
/// default) even if it is empty, and limits the kernel memory that a slow receiver occupies. CPU
/// per 1 MB exchange with pipes of 64 KiB, 256 KiB, 512 KiB and 1 MiB: 414, 202, 184, 200 us.
const PIPE_BYTES: usize = 256 << 10;

/// A pipe that the kernel made smaller (the user's pages are used up: then it gives two) is not
/// worth the system calls.
const PIPE_BYTES_MIN: usize = 64 << 10;

/// Pipes of a thread at the most; beyond it bytes are copied. A pipe is two file descriptors.
const PIPES_MAX: usize = 1024;

/// Empty pipes kept for reuse at the most.
const KEPT_MAX: usize = 64;

/// Asked of one `splice`. A slot of the pipe holds up to 32 KiB of received data, not just a page,
/// so that more than [`PIPE_BYTES`] can fit.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// Times that a pipe is filled in one turn of a task, so that others get theirs.
const ROUNDS: usize = 16;

/// The pipes of one thread.
#[derive(Default)]
pub(crate) struct Pipes {
    free: RefCell<Vec<Ends>>,
    open: Cell<usize>,
    /// The first descriptor that a pipe must not have, once that is known.
    line: Cell<Option<RawFd>>,
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipes {
    /// Has new pipes use only descriptors below `line`.
    pub(crate) fn stay_below(&self, line: RawFd) {
        self.line.set(Some(line));
    }

    /// An empty pipe, or `None` if there can be no more of a useful size.
    pub(crate) fn take(self: &Rc<Self>) -> Option<Pipe> {
        let kept = self.free.borrow_mut().pop();
        let ends = match kept {
            Some(ends) => ends,
            None if self.open.get() < PIPES_MAX => {
                let ends = Ends::open(self.line.get().unwrap_or(RawFd::MAX))?;
                self.open.set(self.open.get() + 1);
                ends
            }
            None => return None,
        };
        Some(Pipe { ends: Some(ends), fill: 0, owner: self.clone() })
    }
}

impl Ends {
    fn open(line: RawFd) -> Option<Ends> {
        let mut fds = [-1; 2];
        // SAFETY: the kernel writes two descriptors to `fds`.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } < 0 {
            return None;
        }
        // SAFETY: the descriptors are new and ours alone.
        let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        if read.as_raw_fd().max(write.as_raw_fd()) >= line {
            return None;
        }
        // SAFETY: plain fcntl calls on a descriptor that we own. Growing is denied beyond the
        // user's pages; the pipe then keeps the size it has.
        let size = unsafe {
            libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES as libc::c_int);
            libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
        };
        (size >= PIPE_BYTES_MIN as libc::c_int).then_some(Ends { read, write })
    }
}

/// Bytes on their way through the kernel.
pub(crate) struct Pipe {
    ends: Option<Ends>,
    fill: usize,
    owner: Rc<Pipes>,
}

impl Pipe {
    /// Bytes in it.
    pub(crate) fn len(&self) -> usize {
        self.fill
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.fill == 0
    }

    /// Takes up to `max` bytes from the socket into the pipe, which must be empty; 0 is the end of
    /// the stream.
    pub(crate) fn fill_from(&mut self, socket: RawFd, max: usize) -> io::Result<usize> {
        debug_assert!(self.is_empty());
        self.fill = splice(socket, self.ends().write.as_raw_fd(), max)?;
        Ok(self.fill)
    }

    /// Writes everything to the socket. Waits until it is writable for the rest.
    pub(crate) fn poll_empty_to(
        &mut self,
        cx: &mut Context<'_>,
        to: &Socket,
    ) -> Poll<io::Result<()>> {
        to.poll_writing(cx, |socket| {
            while self.fill > 0 {
                match splice(self.ends().read.as_raw_fd(), socket, self.fill)? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    moved => {
                        self.fill -= moved;
                        to.has_sent(moved);
                    }
                }
            }
            Ok(())
        })
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("only drop takes the ends")
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut free = self.owner.free.borrow_mut();
        // The rest of a pipe must never reach another connection.
        if self.fill == 0 && free.len() < KEPT_MAX {
            free.extend(self.ends.take());
        } else {
            self.owner.open.set(self.owner.open.get() - 1);
        }
    }
}

fn splice(from: RawFd, to: RawFd, max: usize) -> io::Result<usize> {
    // SAFETY: no offsets are passed; both descriptors are borrowed from their owners for the call.
    let moved = unsafe {
        libc::splice(
            from,
            std::ptr::null_mut(),
            to,
            std::ptr::null_mut(),
            max,
            libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
        )
    };
    if moved < 0 { Err(io::Error::last_os_error()) } else { Ok(moved as usize) }
}

/// Which side failed while bytes were moved.
#[derive(Debug)]
pub(crate) enum Side {
    /// Reading failed.
    From,
    /// Writing failed.
    To,
    /// The stream ended before all bytes had come.
    Truncated,
}

/// A body of known length on its way from one socket to another.
pub(crate) struct SpliceBody {
    unread: u64,
    pipe: Pipe,
}

impl SpliceBody {
    /// A body of which `length` bytes have yet to be read; `None` if there is no pipe for it (copy
    /// then).
    pub(crate) fn new(pipes: &Rc<Pipes>, length: u64) -> Option<SpliceBody> {
        Some(SpliceBody { unread: length, pipe: pipes.take()? })
    }

    /// Bytes that have not been written yet.
    pub(crate) fn remaining(&self) -> u64 {
        self.unread + self.pipe.len() as u64
    }

    /// Whether it holds bytes that were read and not yet written.
    pub(crate) fn holds_bytes(&self) -> bool {
        !self.pipe.is_empty()
    }

    /// Moves as many bytes as possible; ready when all have been written. If its turn ends before,
    /// it wakes the task itself, so that [`SpliceBody::remaining`] may have decreased on a
    /// `Pending`.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
    ) -> Poll<Result<(), Side>> {
        for _ in 0..ROUNDS {
            if !self.pipe.is_empty() {
                ready!(self.pipe.poll_empty_to(cx, to)).map_err(|_| Side::To)?;
            }
            if self.unread == 0 {
                return Poll::Ready(Ok(()));
            }
            let max = usize::try_from(self.unread).map_or(CHUNK_BYTES, |all| all.min(CHUNK_BYTES));
            let filled = from.poll_reading(cx, |socket| self.pipe.fill_from(socket, max));
            match ready!(filled).map_err(|_| Side::From)? {
                0 => return Poll::Ready(Err(Side::Truncated)),
                read => {
                    self.unread -= read as u64;
                    from.has_received(read);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
