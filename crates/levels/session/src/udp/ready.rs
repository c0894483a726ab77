//! The client sockets of a front door that have something to read.
//!
//! They are in an epoll set of their own, which is one source of the thread's event loop.
//! Registering each of them there would cost a readiness record per client, and waking the door's
//! task for each datagram's event; like this it is woken once for all that came.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

/// Sockets reported at once at the most.
pub(super) const EVENTS: usize = 64;

pub(super) struct ReadySet {
    epoll: AsyncFd<OwnedFd>,
    events: Vec<libc::epoll_event>,
}

impl ReadySet {
    pub(super) fn new() -> io::Result<ReadySet> {
        // SAFETY: no pointers are passed; the descriptor returned is new and ours alone.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        Ok(ReadySet { epoll: crate::socket::watch(epoll)?, events })
    }

    /// Adds a socket; closing it takes it out. It is reported as `token` for as long as it is
    /// readable.
    pub(super) fn add(&self, socket: &OwnedFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: both descriptors are open, and the kernel copies the event.
        let result = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                socket.as_raw_fd(),
                &raw mut event,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for readable sockets. `handle` gets their tokens, and returns whether it has read
    /// everything. A socket with a rest is reported again.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        handle: impl FnOnce(&mut dyn Iterator<Item = u64>) -> bool,
    ) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.epoll.poll_read_ready(cx))?;
        // SAFETY: the kernel writes at most `EVENTS` events, which is the vector's length.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS as libc::c_int,
                0,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return Poll::Ready(if interrupted { Ok(()) } else { Err(error) });
        };
        let drained = handle(&mut self.events[..count].iter().map(|event| event.u64));
        // A datagram that arrives from here on makes the set readable anew.
        if drained && count < EVENTS {
            guard.clear_ready();
        }
        Poll::Ready(Ok(()))
    }
}
