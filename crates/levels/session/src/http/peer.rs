//! A connection that begins with TLS: only a peer's is accepted.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::connection::ClientConnection;
use super::logged::log_unread;
use equipoise_tls::{PeerIdentity, PeerTls};

use crate::reason::Reason;
use crate::tls::Tls;
use crate::worker::Phase;

impl ClientConnection {
    /// Performs the handshake that began with the bytes already read; returns whether the client is
    /// a peer.
    pub(super) async fn meet_peer(&mut self, tls: &PeerTls) -> bool {
        self.deadline.set(Instant::now(), self.door.view().config.timeouts.header);
        let met = match self.begin_tls(tls) {
            Ok(()) => poll_fn(|cx| self.poll_meeting(cx)).await,
            Err(error) => Err(error),
        };
        let identity =
            || PeerIdentity::new(self.client.certificate(), tls).map_err(io::Error::from);
        match met.and_then(|()| identity()) {
            Ok(identity) => {
                let idle = self.door.view().config.timeouts.idle;
                self.deadline.set(Instant::now(), idle);
                self.peer_identity = Some(Box::new(identity));
                true
            }
            Err(error) => {
                tracing::debug!(client = %self.peer, %error, "a TLS connection is not from a peer");
                self.door.dropped(Reason::PeerRefused);
                log_unread(&self.worker, &self.door, self.peer, Reason::PeerRefused);
                // Further input is discarded unread, so that the alert reaches the client.
                if let Some(client) = Rc::get_mut(&mut self.client) {
                    client.give_up_tls();
                }
                false
            }
        }
    }

    fn begin_tls(&mut self, tls: &PeerTls) -> io::Result<()> {
        let (Some(first), Some(client)) = (self.input.take(), Rc::get_mut(&mut self.client)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        client.encrypt(Tls::server(tls.server(), first, &self.worker.buffers)?);
        Ok(())
    }

    fn poll_meeting(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(met) = self.client.poll_handshake(cx) {
            return Poll::Ready(met);
        }
        if self.deadline.is_past() || self.worker.phase.get() == Phase::Cutting {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}
