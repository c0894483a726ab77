//! System calls on sockets of this thread's event loop.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, SockRef, Type};
use tokio::io::unix::AsyncFd;

/// Registers a descriptor that other threads own too with this thread's event loop.
pub(crate) fn watch_shared(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the descriptor stays open, and the same, until its last owner drops it.
    unsafe { AsyncFd::register(fd) }.map_err(|failed| failed.into_parts().1)
}

/// Registers a descriptor with this thread's event loop.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd stays open, and the same, until it is dropped, which AsyncFd does last.
    unsafe { AsyncFd::register(fd) }.map_err(|failed| failed.into_parts().1)
}

/// Reads available bytes, once there are some; 0 is the end of the stream.
pub(crate) fn recv(
    cx: &mut Context<'_>,
    fd: &AsyncFd<OwnedFd>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        let mut guard = ready!(fd.poll_read_ready(cx))?;
        // The kernel is asked directly (rustix): libc's wrapper is a thread cancellation point,
        // which is felt at this rate.
        match rustix::net::recv(fd.get_ref(), &mut *buffer, RecvFlags::empty()) {
            Ok((read, _)) => {
                if read > 0 && read < buffer.len() {
                    guard.clear_ready();
                }
                return Poll::Ready(Ok(read));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => guard.clear_ready(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}

/// Sends FIN after the bytes that the kernel has accepted.
pub(crate) fn finish(fd: RawFd) {
    // SAFETY: callers own the socket, which stays open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // The peer may have closed already, which needs no action.
    let _ = SockRef::from(&fd).shutdown(std::net::Shutdown::Write);
}

/// Sends as much as the kernel accepts now.
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: callers own the socket, which stays open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?)
}

/// The same with bytes that are apart.
pub(crate) fn send_vectored(fd: RawFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: callers own the socket, which stays open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut nothing = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(fd, parts, &mut nothing, SendFlags::NOSIGNAL)?)
}

/// A new socket, non-blocking and close-on-exec, with a descriptor below `line`.
///
/// # Errors
/// `EMFILE` without such a descriptor; else the error of the operating system.
pub(crate) fn open_below(line: RawFd, domain: Domain, kind: Type) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, kind.nonblocking().cloexec(), None)?;
    if socket.as_raw_fd() >= line {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok(socket)
}

/// Accepts one connection, non-blocking and close-on-exec.
pub(crate) fn accept(listener: RawFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut storage = socket2::SockAddrStorage::zeroed();
    let mut length = storage.size_of();
    // SAFETY: the storage is large enough for any address and `length` says how large; the
    // descriptor returned is new and ours alone.
    let fd = unsafe {
        let fd = libc::accept4(
            listener,
            (&raw mut storage).cast(),
            &raw mut length,
            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the kernel filled `length` bytes of the storage.
    let address = unsafe { socket2::SockAddr::new(storage, length) };
    let address = address
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "peer is not an IP address"))?;
    Ok((fd, address))
}

/// How many bytes of at most one could be read now.
pub(super) fn peek(fd: RawFd) -> io::Result<usize> {
    let mut byte = 0u8;
    // SAFETY: the pointer and length describe `byte`; MSG_PEEK leaves the stream as it is.
    let read =
        unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) }
}

/// Bytes that the peer's kernel has acknowledged, ever; `None` where the kernel does not say.
pub(super) fn bytes_acknowledged(fd: RawFd) -> Option<u64> {
    // SAFETY: tcp_info is plain integers, for which all-zero is a value.
    let mut info: TcpInfoPrefix = unsafe { std::mem::zeroed() };
    let mut length = size_of::<TcpInfoPrefix>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `info`; the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0 && length as usize >= size_of::<TcpInfoPrefix>()).then_some(info.bytes_acked)
}

/// The start of the kernel's `struct tcp_info` up to `tcpi_bytes_acked` (include/uapi/linux/tcp.h);
/// libc's copy ends before it.
#[repr(C)]
struct TcpInfoPrefix {
    states: [u8; 8],
    counters: [u32; 24],
    pacing_rates: [u64; 2],
    bytes_acked: u64,
}

const _: () = assert!(std::mem::offset_of!(TcpInfoPrefix, bytes_acked) == 120);
