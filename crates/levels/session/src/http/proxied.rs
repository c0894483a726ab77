//! Sessions that begin with a PROXY header. The header names one client, so such a session is for
//! the requests of one client connection, and ends with it.

use std::net::SocketAddr;
use std::time::Instant;

use super::connection::ClientConnection;
use crate::buffer::Buffer;
use crate::lease::Lease;
use crate::proxy_protocol::{self, Announced, Extensions};
use crate::upstream::Session;

/// Content of the PROXY header that a connection began with.
pub(crate) struct ProxyFacts {
    /// Where the client connected to; `None`: the sender spoke for itself.
    pub(super) destination: Option<SocketAddr>,
    /// Its extensions.
    pub(super) extensions: Option<Box<Extensions>>,
}

impl ClientConnection {
    /// An idle session for a request at the leased backend.
    pub(super) fn take_session(&self, lease: &Lease) -> Option<Box<Session>> {
        let (options, backend) = (&lease.pool().options, lease.backend());
        if options.send_proxy.is_none() {
            return self.worker.idle.take(backend, options.tls.as_ref());
        }
        let (since, mut session) = self.kept.take()?;
        let is_usable = since.elapsed() < options.session_idle_timeout
            && !backend.live.is_multiplexing_lost()
            && session.is_reusable(backend, options.tls.as_ref());
        is_usable.then(|| {
            session.count_reuse();
            session
        })
    }

    /// Keeps a session for a later request.
    pub(super) fn keep_session(&self, lease: &Lease, session: Box<Session>, now: Instant) {
        let options = &lease.pool().options;
        match options.send_proxy {
            None => {
                self.worker.idle.give(session, lease.permit(), options.idle_sessions_max, now);
            }
            Some(_) if options.idle_sessions_max > 0 => self.kept.set(Some((now, session))),
            Some(_) => {}
        }
    }

    /// The PROXY header of a new session, if the pool has one.
    pub(super) fn proxy_header(&self, lease: &Lease) -> Option<Buffer> {
        let version = lease.pool().options.send_proxy?;
        let socket = self.under.as_ref().unwrap_or(&self.client);
        let proxy = self.proxy.as_deref();
        let listen = || socket.local_address().unwrap_or(self.door.view().config.listen);
        let destination = proxy.and_then(|proxy| proxy.destination).unwrap_or_else(listen);
        let extensions = proxy.and_then(|proxy| proxy.extensions.as_deref());
        let extensions = Extensions::of(extensions, socket, None);
        let mut header = self.worker.buffers.take();
        let ends = Announced { source: self.peer, destination };
        proxy_protocol::write(version, ends, &extensions, &mut header);
        Some(header)
    }
}
