//! A connected stream socket on this thread's event loop.
//!
//! Unlike `tokio::net::TcpStream` its reads and writes take `&self`, so that a client's socket can
//! be written by the task that owns the upstream session; and a short read clears readiness at
//! once, which saves the `EAGAIN` that edge-triggered polling otherwise costs per request.

mod calls;
mod streams;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use socket2::{Domain, SockRef, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) use self::calls::{
    accept, finish, open_below, recv, send, send_vectored, watch, watch_shared,
};
pub(crate) use self::streams::{BackendStream, ClientStream};
use crate::buffer::{Buffer, Buffers};
use crate::tls::{IdleTls, Tls};

/// From one keep-alive probe to the next, where silence is noticed: the kernel counts them in
/// seconds.
const PROBE: Duration = Duration::from_secs(1);

enum Stream {
    Kernel(AsyncFd<OwnedFd>),
    /// A stream of a client's connection.
    Client(Rc<dyn ClientStream>),
    /// A stream of a connection to a backend.
    Backend(Box<dyn BackendStream>),
}

/// A non-blocking stream socket, encrypted or not.
pub(crate) struct Socket {
    stream: Stream,
    tls: Option<Box<RefCell<Tls>>>,
    /// Bytes that were read, ever.
    received: Cell<u64>,
    /// Bytes that the kernel took, ever.
    sent: Cell<u64>,
}

impl Socket {
    /// Registers a connected, non-blocking socket with this thread's event loop.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Socket> {
        Ok(Socket::of_watched(watch(fd)?))
    }

    /// A stream of a client's connection.
    pub(crate) fn of_client(stream: Rc<dyn ClientStream>) -> Socket {
        Socket::over(Stream::Client(stream))
    }

    /// A stream of a connection to a backend.
    pub(crate) fn of_stream(stream: Box<dyn BackendStream>) -> Socket {
        Socket::over(Stream::Backend(stream))
    }

    fn over(stream: Stream) -> Socket {
        Socket { stream, tls: None, received: Cell::new(0), sent: Cell::new(0) }
    }

    /// The kernel's socket. Operations that need one are not for streams.
    fn fd(&self) -> &AsyncFd<OwnedFd> {
        match &self.stream {
            Stream::Kernel(fd) => fd,
            Stream::Client(_) | Stream::Backend(_) => unreachable!("a stream has no descriptor"),
        }
    }

    fn as_client(&self) -> Option<&dyn ClientStream> {
        match &self.stream {
            Stream::Client(stream) => Some(&**stream),
            Stream::Kernel(_) | Stream::Backend(_) => None,
        }
    }

    /// The stream of a connection to a backend, if it is one.
    pub(crate) fn as_stream(&self) -> Option<&dyn BackendStream> {
        match &self.stream {
            Stream::Backend(stream) => Some(&**stream),
            Stream::Kernel(_) | Stream::Client(_) => None,
        }
    }

    /// Opens a connection over a descriptor below `line`; resolves when it is established or has
    /// failed.
    ///
    /// # Errors
    /// `EMFILE` if there is no such descriptor; otherwise the error of the operating system.
    pub(crate) async fn connect(address: SocketAddr, line: RawFd) -> io::Result<Socket> {
        let socket = open_below(line, Domain::for_address(address), Type::STREAM)?;
        // Nothing here benefits from Nagle; a socket that refuses the option still works.
        let _ = socket.set_tcp_nodelay(true);
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let socket = Socket::new(socket.into())?;
        loop {
            let mut guard = socket.fd().writable().await?;
            if let Some(error) = SockRef::from(&socket.fd().get_ref()).take_error()? {
                return Err(error);
            }
            if SockRef::from(&socket.fd().get_ref()).peer_addr().is_ok() {
                break;
            }
            guard.clear_ready();
        }
        Ok(socket)
    }

    /// Opens a connection to a unix socket, which is there at once or not at all: `EAGAIN` says
    /// that its queue is full.
    pub(crate) fn connect_unix(path: &Path, line: RawFd) -> io::Result<Socket> {
        let socket = open_below(line, Domain::UNIX, Type::STREAM)?;
        socket.connect(&socket2::SockAddr::unix(path)?)?;
        Socket::new(socket.into())
    }

    /// A connected, non-blocking socket that this thread's event loop watches already.
    pub(crate) fn of_watched(fd: AsyncFd<OwnedFd>) -> Socket {
        Socket::over(Stream::Kernel(fd))
    }

    /// The kernel's socket, which this thread's event loop still watches, and its TLS if it is
    /// encrypted; `None`: it is a stream, or its TLS is not idle.
    pub(crate) fn into_idle(self) -> Option<(AsyncFd<OwnedFd>, Option<IdleTls>)> {
        let Stream::Kernel(fd) = self.stream else { return None };
        match self.tls {
            None => Some((fd, None)),
            Some(tls) => Some((fd, Some(tls.into_inner().into_idle()?))),
        }
    }

    /// Encrypts from now on; hands are still to be shaken ([`Socket::poll_handshake`]).
    pub(crate) fn encrypt(&mut self, tls: Tls) {
        self.tls = Some(Box::new(RefCell::new(tls)));
    }

    /// Speaks in the clear again, after a handshake that failed.
    pub(crate) fn give_up_tls(&mut self) {
        self.tls = None;
    }

    /// Its TLS, if it is encrypted.
    pub(crate) fn tls(&self) -> Option<&RefCell<Tls>> {
        self.tls.as_deref()
    }

    /// The certificate that the other side showed, if it did.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.tls()?.borrow().certificate()
    }

    /// Shakes hands.
    pub(crate) fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(tls) => tls.borrow_mut().poll_handshake(cx, self.fd()),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Whether its bytes may be moved inside the kernel.
    pub(crate) fn may_splice(&self) -> bool {
        self.tls.is_none() && matches!(self.stream, Stream::Kernel(_))
    }

    /// Reads into `buffer`; 0 is the end of the stream.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(match (&self.stream, &self.tls) {
            (Stream::Client(stream), _) => stream.poll_read(cx, buffer),
            (Stream::Backend(stream), _) => stream.poll_read(cx, buffer),
            (Stream::Kernel(fd), None) => recv(cx, fd, buffer),
            (Stream::Kernel(fd), Some(tls)) => tls.borrow_mut().poll_read(cx, fd, buffer),
        })?;
        self.has_received(read);
        Poll::Ready(Ok(read))
    }

    /// Bytes of the application that were read from it, ever.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Bytes of the application that were written to it, ever.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Counts bytes that the kernel moved out of it by `splice`.
    pub(crate) fn has_received(&self, count: usize) {
        self.received.set(self.received.get() + count as u64);
    }

    /// Counts bytes that the kernel moved into it by `splice`.
    pub(crate) fn has_sent(&self, count: usize) {
        self.sent.set(self.sent.get() + count as u64);
    }

    /// Ready when a read would not block (data, end or error).
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(stream) = self.as_client() {
            return stream.poll_readable(cx).map(Ok);
        }
        if let Some(stream) = self.as_stream() {
            return stream.poll_readable(cx).map(Ok);
        }
        if self.tls.as_ref().is_some_and(|tls| tls.borrow().holds_bytes()) {
            return Poll::Ready(Ok(()));
        }
        let _guard = ready!(self.fd().poll_read_ready(cx))?;
        Poll::Ready(Ok(()))
    }

    /// Has a stream of a connection to a backend take what has come, while its reader waits for
    /// something else.
    pub(crate) fn read_ahead(&self, cx: &mut Context<'_>) {
        if let Some(stream) = self.as_stream() {
            stream.read_ahead(cx);
        }
    }

    /// Writes some of `bytes`.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(match (&self.stream, &self.tls) {
            (Stream::Client(stream), _) => stream.poll_write(cx, bytes),
            (Stream::Backend(stream), _) => stream.poll_write(cx, bytes),
            (Stream::Kernel(_), None) => self.poll_writing(cx, |fd| send(fd, bytes)),
            (Stream::Kernel(fd), Some(tls)) => tls.borrow_mut().poll_write(cx, fd, bytes),
        })?;
        self.has_sent(written);
        Poll::Ready(Ok(written))
    }

    /// Runs `operation` on the descriptor once it is writable, again while it says `WouldBlock`.
    /// Not on one that is encrypted.
    pub(crate) fn poll_writing<T>(
        &self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(RawFd) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        debug_assert!(self.tls.is_none());
        loop {
            let mut guard = ready!(self.fd().poll_write_ready(cx))?;
            match operation(self.as_raw_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Runs `operation` on the descriptor once it is readable, again while it says `WouldBlock`.
    /// Not on one that is encrypted.
    pub(crate) fn poll_reading<T>(
        &self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(RawFd) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        debug_assert!(self.tls.is_none());
        loop {
            let mut guard = ready!(self.fd().poll_read_ready(cx))?;
            match operation(self.as_raw_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Writes as much as the kernel accepts now, without waiting and without a waker.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match (&self.stream, &self.tls) {
            (Stream::Client(stream), _) => stream.try_write(bytes),
            // Its request is written by the task that reads its response.
            (Stream::Backend(_), _) => Err(io::ErrorKind::Unsupported.into()),
            (Stream::Kernel(fd), None) => send(fd.as_raw_fd(), bytes),
            (Stream::Kernel(fd), Some(tls)) => tls.borrow_mut().try_write(fd.as_raw_fd(), bytes),
        }?;
        self.has_sent(written);
        Ok(written)
    }

    /// Where the peer connected to (an accepted socket), or whence this one did.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        let address = SockRef::from(self.fd().get_ref()).local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Makes reads fail when the other side has been silent for `within`: by probes each second
    /// while no data is in transit, and, if `sent_too`, by missing acknowledgement of sent data.
    pub(crate) fn notice_silence(&self, within: Duration, sent_too: bool) {
        let socket = SockRef::from(self.fd().get_ref());
        let count = within.as_secs().saturating_sub(1).max(1) as u32;
        let probes = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(count);
        // A socket that refuses the options (a unix socket) cannot fall silent.
        let _ = socket.set_tcp_keepalive(&probes);
        let _ = socket.set_tcp_user_timeout(sent_too.then_some(within));
    }

    /// Sends FIN after the written bytes, and before it TLS's announcement of the end; ready when
    /// the kernel has accepted both.
    pub(crate) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<()> {
        match (&self.stream, &self.tls) {
            (Stream::Client(stream), _) => stream.end_tunnel(cx),
            (Stream::Backend(stream), _) => return stream.poll_end_tunnel(cx),
            (Stream::Kernel(fd), None) => finish(fd.as_raw_fd()),
            (Stream::Kernel(fd), Some(tls)) => return tls.borrow_mut().poll_end(cx, fd),
        }
        Poll::Ready(())
    }

    /// Announces the end over TLS, if the kernel accepts that now. Without TLS, the close that
    /// follows is enough.
    pub(crate) fn announce_end(&self) {
        if self.tls.is_some() {
            let _ = self.poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Makes the close that follows send RST: the peer learns that its message was cut.
    pub(crate) fn reset_on_close(&self) {
        if let Some(stream) = self.as_client() {
            return stream.cut();
        }
        if self.as_stream().is_some() {
            // The drop of a stream that has not ended resets it.
            return;
        }
        // A socket that refuses the option closes with FIN, which is the next best thing.
        let _ = SockRef::from(self.fd().get_ref()).set_linger(Some(Duration::ZERO));
    }

    /// Whether there is no unread input, and the peer has not closed. Asks the kernel only after an
    /// event; wakes no task later.
    pub(crate) fn is_silent(&self) -> bool {
        if let Some(tls) = &self.tls {
            let mut cx = Context::from_waker(Waker::noop());
            return tls.borrow_mut().is_silent(&mut cx, self.fd());
        }
        is_silent_since_event(self.fd())
    }

    /// Whether bytes of the application have come that were not read; consumes nothing. With TLS,
    /// those that [`Socket::is_silent`] has found.
    pub(crate) fn holds_input(&self) -> bool {
        match &self.tls {
            None => matches!(calls::peek(self.as_raw_fd()), Ok(1..)),
            Some(tls) => tls.borrow_mut().holds_plaintext(),
        }
    }

    /// Bytes of a write that is pending: they will be sent, although the write has not returned.
    pub(crate) fn pending(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.borrow().accepted())
    }

    /// Whether the peer has reset the connection (as against half-closed it); consumes nothing.
    pub(crate) fn is_reset(&self) -> bool {
        if let Some(stream) = self.as_client() {
            return stream.is_cut();
        }
        calls::peek(self.as_raw_fd()).is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
    }

    /// Ready with true once the peer has closed or reset the connection, with false once there is
    /// something to read before its end; consumes nothing that a read would return.
    pub(crate) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(stream) = self.as_client() {
            return stream.poll_readable(cx).map(|()| !stream.holds_input());
        }
        if let Some(stream) = self.as_stream() {
            return stream.poll_readable(cx).map(|()| false);
        }
        if let Some(tls) = &self.tls {
            return tls.borrow_mut().poll_left(cx, self.fd());
        }
        loop {
            let Ok(mut guard) = ready!(self.fd().poll_read_ready(cx)) else {
                return Poll::Ready(true);
            };
            match calls::peek(self.as_raw_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(1..) => return Poll::Ready(false),
                Ok(0) | Err(_) => return Poll::Ready(true),
            }
        }
    }

    /// Bytes that the peer's kernel has acknowledged, ever; `None` where the kernel does not say.
    pub(crate) fn bytes_acknowledged(&self) -> Option<u64> {
        calls::bytes_acknowledged(self.as_raw_fd())
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd().as_raw_fd()
    }
}

/// Whether a socket has no unread input, and the peer has not closed.
pub(crate) fn is_silent(fd: &OwnedFd) -> bool {
    would_block(calls::peek(fd.as_raw_fd()))
}

/// As [`is_silent`]. Asks the kernel only after an event; wakes no task later.
fn is_silent_since_event(fd: &AsyncFd<OwnedFd>) -> bool {
    // Unlike `poll_read_ready`, it answers also when the task has used up its share of a turn.
    would_block(fd.try_io(Interest::READABLE, |fd| calls::peek(fd.as_raw_fd())))
}

fn would_block(read: io::Result<usize>) -> bool {
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Reads into `input`, which only keeps a buffer while it holds something. 0 is the end.
pub(crate) fn poll_fill(
    cx: &mut Context<'_>,
    from: &Socket,
    input: &mut Option<Buffer>,
    buffers: &Rc<Buffers>,
) -> Poll<io::Result<usize>> {
    let buffer = input.get_or_insert_with(|| buffers.take());
    let result = from.poll_read(cx, buffer.space());
    if let Poll::Ready(Ok(read)) = &result {
        buffer.filled(*read);
    }
    if buffer.is_empty() {
        *input = None;
    }
    result
}
