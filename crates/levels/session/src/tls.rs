//! TLS on a stream socket: writes are encrypted, reads decrypted, in bounded memory.
//!
//! A layer under [`Socket`](crate::socket::Socket). The methods mean the same with it: a write that
//! is ready has reached the kernel, so that back-pressure is the socket's own. It holds at most one
//! buffer of input, a record of plaintext, and the records of one write that the kernel has not
//! accepted yet.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use equipoise_tls::{NotThePeer, Protocols};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, ClientConnection, Connection, HandshakeKind,
    IoState, ProtocolVersion, ServerConfig, ServerConnection,
};
use tokio::io::unix::AsyncFd;

use crate::buffer::{Buffer, Buffers};
use crate::socket::{recv, send, send_vectored};

/// The first byte of a TLS connection: a record of the handshake (RFC 8446, section 5.1). No method
/// of HTTP begins with it.
pub(crate) const FIRST_BYTE: u8 = 0x16;

/// The peer's identity is read from its certificate; a server name is neither sent nor checked.
pub(crate) const ANY_NAME: &str = "peer.invalid";

/// One end of a TLS connection.
pub(crate) struct Tls {
    connection: Box<Connection>,
    /// Input that the connection has not consumed yet; present only while there is some.
    held: Option<Buffer>,
    buffers: Rc<Buffers>,
    /// Bytes of the current write that were encrypted and have not all reached the kernel: they are
    /// not to be encrypted again.
    accepted: usize,
    /// Bytes that went over the wire.
    sent: u64,
    /// FIN follows the bytes that are still unsent.
    ends: bool,
    /// The end of the written bytes was announced.
    has_ended: bool,
}

/// One end of an idle TLS connection, which any thread may go on with.
#[derive(Debug)]
pub(crate) struct IdleTls {
    connection: Box<Connection>,
    sent: u64,
}

impl Tls {
    /// The end that begins, and asks the other for this name.
    pub(crate) fn client(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
        offers: Option<Protocols>,
        buffers: &Rc<Buffers>,
    ) -> io::Result<Tls> {
        let alpn = offers.map_or_else(|| config.alpn_protocols.clone(), Protocols::alpn);
        let connection = ClientConnection::new_with_alpn(Arc::clone(config), name, alpn);
        Ok(Tls::new(connection.map_err(failed)?.into(), None, buffers))
    }

    /// The end that was connected to, from which `first` was read already.
    pub(crate) fn server(
        config: &Arc<ServerConfig>,
        first: Buffer,
        buffers: &Rc<Buffers>,
    ) -> io::Result<Tls> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(failed)?;
        Ok(Tls::new(connection.into(), Some(first), buffers))
    }

    fn new(connection: Connection, held: Option<Buffer>, buffers: &Rc<Buffers>) -> Tls {
        let (connection, buffers) = (Box::new(connection), Rc::clone(buffers));
        Tls { connection, held, buffers, accepted: 0, sent: 0, ends: false, has_ended: false }
    }

    /// Goes on with an idle connection, in buffers of this thread.
    pub(crate) fn of_idle(idle: IdleTls, buffers: &Rc<Buffers>) -> Tls {
        let IdleTls { connection, sent } = idle;
        let buffers = Rc::clone(buffers);
        Tls { connection, held: None, buffers, accepted: 0, sent, ends: false, has_ended: false }
    }

    /// The connection without this thread's buffers; `None` if it is not idle.
    pub(crate) fn into_idle(self) -> Option<IdleTls> {
        let is_idle = self.held.is_none() && !self.connection.wants_write() && !self.has_ended;
        is_idle.then_some(IdleTls { connection: self.connection, sent: self.sent })
    }

    /// The other end's certificate, once hands were shaken.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.connection.peer_certificates()?.first().map(|shown| shown.clone().into_owned())
    }

    /// The name that the client asked for, at the server's end.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &*self.connection {
            Connection::Server(server) => server.server_name(),
            Connection::Client(_) => None,
        }
    }

    /// Whether the handshake resumed a session.
    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether HTTP/2 was chosen by ALPN; `None`: the client did not use ALPN.
    pub(crate) fn chose_http2(&self) -> Option<bool> {
        self.connection.alpn_protocol().map(|chosen| chosen == b"h2")
    }

    /// The application protocol that was chosen by ALPN.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// The version of TLS.
    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.connection.protocol_version()
    }

    /// The cipher suite.
    pub(crate) fn cipher(&self) -> Option<CipherSuite> {
        self.connection.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    /// Bytes that went over the wire, ever.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Performs the handshake; ready when its last bytes were sent.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        fd: &AsyncFd<OwnedFd>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(cx, fd))?;
            if !self.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(cx, fd))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.feed(fd)?;
        }
    }

    /// Reads plaintext; 0 is the end that the other side announced. An end without an announcement
    /// is an error, because bytes may be missing. But once this side has announced its own end, the
    /// other may just close: nginx and many clients do.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        fd: &AsyncFd<OwnedFd>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            // The rest of an earlier write, of which its writer has not been notified.
            if self.connection.wants_write()
                && let Poll::Ready(Err(error)) = self.poll_flush(cx, fd)
            {
                return Poll::Ready(Err(error));
            }
            if ready!(self.poll_fill(cx, fd))? == 0 {
                if self.has_ended {
                    return Poll::Ready(Ok(0));
                }
                self.connection.read_tls(&mut io::empty())?;
                continue;
            }
            self.feed(fd)?;
        }
    }

    /// Writes some of `bytes`. While it is pending, the next call must have the same bytes.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        fd: &AsyncFd<OwnedFd>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.accepted == 0 {
            // There may be no room before the rest is sent.
            ready!(self.poll_flush(cx, fd))?;
            self.accepted = self.connection.writer().write(bytes)?;
            if self.accepted == 0 && !bytes.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        ready!(self.poll_flush(cx, fd))?;
        Poll::Ready(Ok(std::mem::take(&mut self.accepted).min(bytes.len())))
    }

    /// The same without a waker. `WouldBlock`: call [`Tls::poll_write`] with the same bytes.
    pub(crate) fn try_write(&mut self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        if self.accepted == 0 {
            self.flush(fd)?;
            self.accepted = self.connection.writer().write(bytes)?;
        }
        self.flush(fd)?;
        Ok(std::mem::take(&mut self.accepted).min(bytes.len()))
    }

    /// Whether a read would not have to ask the kernel.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.held.is_some()
    }

    /// Bytes of the current write that were encrypted, and of which the writer does not know yet.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted
    }

    /// Whether unread bytes of the other side's application have arrived; asks nothing of the
    /// kernel.
    pub(crate) fn holds_plaintext(&mut self) -> bool {
        let state = self.connection.process_new_packets();
        state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// True if no unread bytes of the other side's application have arrived, and it has not closed.
    pub(crate) fn is_silent(&mut self, cx: &mut Context<'_>, fd: &AsyncFd<OwnedFd>) -> bool {
        loop {
            // A new key or a ticket is not data of the application.
            match self.feed(fd) {
                Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                Ok(_) | Err(_) => return false,
            }
            match self.poll_fill(cx, fd) {
                Poll::Pending => return true,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return false,
            }
        }
    }

    /// Ready with true once the peer has announced its end or its connection failed, with false
    /// once there are bytes of its application to read.
    pub(crate) fn poll_left(&mut self, cx: &mut Context<'_>, fd: &AsyncFd<OwnedFd>) -> Poll<bool> {
        let mut state = self.connection.process_new_packets().map_err(failed);
        loop {
            match state {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return Poll::Ready(false),
                Ok(state) if state.peer_has_closed() => return Poll::Ready(true),
                Ok(_) => {}
                Err(_) => return Poll::Ready(true),
            }
            if !matches!(ready!(self.poll_fill(cx, fd)), Ok(1..)) {
                return Poll::Ready(true);
            }
            state = self.feed(fd);
        }
    }

    /// Announces the end of the written bytes, and sends FIN after it; ready when the kernel has
    /// accepted both. If the connection fails first, there is nothing to announce.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>, fd: &AsyncFd<OwnedFd>) -> Poll<()> {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.connection.send_close_notify();
            self.ends = true;
        }
        self.poll_flush(cx, fd).map(|_| ())
    }

    /// Reads from the kernel unless something is held; 0 is the end of the stream.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        fd: &AsyncFd<OwnedFd>,
    ) -> Poll<io::Result<usize>> {
        if let Some(held) = &self.held {
            return Poll::Ready(Ok(held.len()));
        }
        let mut buffer = self.buffers.take();
        let read = ready!(recv(cx, fd, buffer.space()))?;
        if read > 0 {
            buffer.filled(read);
            self.held = Some(buffer);
        }
        Poll::Ready(Ok(read))
    }

    /// Passes some of the held bytes to the connection.
    fn feed(&mut self, fd: &AsyncFd<OwnedFd>) -> io::Result<IoState> {
        let Some(held) = &mut self.held else {
            return self.connection.process_new_packets().map_err(failed);
        };
        let taken = self.connection.read_tls(&mut &held[..])?;
        held.consume(taken);
        if held.is_empty() {
            self.held = None;
        }
        // It takes nothing behind the announced end.
        if taken == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.connection.process_new_packets().map_err(|error| {
            // The alert is sent to the other side if there is room.
            let _ = self.flush(fd.as_raw_fd());
            failed(error)
        })
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, fd: &AsyncFd<OwnedFd>) -> Poll<io::Result<()>> {
        loop {
            match self.flush(fd.as_raw_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(fd.poll_write_ready(cx))?.clear_ready();
                }
                flushed => return Poll::Ready(flushed),
            }
        }
    }

    /// Sends as much as the kernel accepts now.
    fn flush(&mut self, fd: RawFd) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Wire(fd)) {
                Ok(sent) => self.sent += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if std::mem::take(&mut self.ends) {
            crate::socket::finish(fd);
        }
        Ok(())
    }
}

/// The kernel's side of the socket, for writing.
struct Wire(RawFd);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes)
    }

    /// The connection has its records apart: those of one write, or of a flight of the handshake.
    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        match records {
            [record] => send(self.0, record),
            _ => send_vectored(self.0, records),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Whether TLS itself failed, rather than the connection under it.
pub(crate) fn is_tls_failure(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Whether a session failed because of the other side's certificate, not of the connection.
pub(crate) fn is_distrust(error: &io::Error) -> bool {
    is_tls_failure(error) || error.get_ref().is_some_and(|inner| inner.is::<NotThePeer>())
}

/// Whether the other side rejected our certificate. In TLS 1.3 this arrives after the client
/// regards the handshake as complete; the server has then read nothing after it.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    use AlertDescription as Alert;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        inner,
        Some(rustls::Error::AlertReceived(
            Alert::HandshakeFailure
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::DecryptError
                | Alert::CertificateRequired
                | Alert::NoApplicationProtocol
        ))
    )
}
