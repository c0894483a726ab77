//! HTTP front doors: HTTP/1.0 and HTTP/1.1 over pooled upstream sessions.
//!
//! The life of a request: [`connection`] reads its head, [`request`] checks it and writes the
//! upstream head, [`routing`] decides its route, [`exchange`] serves it. [`place`] picks a backend,
//! [`tries`] tries backends until one answers, [`delegate`] does the same among peers, and [`peer`]
//! accepts them over TLS. [`attempt`] sends the request over the session, [`pump`] moves the body,
//! [`mirror`] sends copies, [`response`] checks the backend's head and writes the client's.
//! [`answer`] has the proxy's own responses, [`grpc`] those to gRPC requests, and [`challenge`]
//! those to an ACME directory. [`http2`] serves each stream of a client as such a connection, and
//! gives each request a stream to a backend; `http3` serves streams of QUIC so.

mod answer;
mod attempt;
mod challenge;
mod chunk;
mod connection;
mod course;
mod delegate;
mod discard;
mod edits;
mod exchange;
mod grpc;
mod head;
mod hedge;
mod http2;
#[cfg(feature = "http3")]
mod http3;
mod logged;
mod mirror;
mod mux;
mod open;
mod origin;
mod peer;
mod place;
mod proxied;
mod pump;
mod redirect;
mod request;
mod resets;
mod respond;
mod response;
mod routed;
mod routing;
mod served;
mod traced;
mod tries;
mod version;
mod why;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use equipoise_tls::ClientIdentity;
use rustls::pki_types::CertificateDer;

use crate::deadline::Deadline;
use crate::door::Door;
use crate::handshake::{self, Refused};
use crate::limiter::Entered;
use crate::linger::{Rest, linger};
use crate::proxy_protocol::{self, Accepted};
use crate::reason::Reason;
use crate::socket::Socket;
use crate::worker::{ClientHashes, Worker};
use connection::ClientConnection;
pub(crate) use http2::downstream::StreamTasks;
use http2::downstream::{self, Spoken};
pub(crate) use http2::upstream::Http2Sessions;
#[cfg(feature = "http3")]
pub(crate) use http3::serve_door as serve_http3;
pub(crate) use logged::Logged;
pub(crate) use mux::MuxSessions;
use proxied::ProxyFacts;
pub(crate) use routed::Routed;
pub(crate) use why::explain;

/// Serves one client connection to its end.
pub(crate) fn serve(
    worker: Rc<Worker>,
    door: Rc<Door>,
    client: Socket,
    peer: SocketAddr,
) -> impl Future<Output = ()> {
    let guards = (worker.task(), door.enter());
    // Boxed, so that a connection does not hold the room for its beginning until its end.
    let begin = Box::pin(begin(worker, door, client, peer));
    async move {
        let _guards = guards;
        let Some((mut connection, _entered)) = begin.await else { return };
        connection.run().await;
    }
}

/// Takes a connection to its first request of HTTP/1: PROXY header, limits, handshake, choice of
/// the protocol. `None`: it has ended; with HTTP/2, it was served to its end.
async fn begin(
    worker: Rc<Worker>,
    door: Rc<Door>,
    mut client: Socket,
    peer: SocketAddr,
) -> Option<(ClientConnection, Entered)> {
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    let (peer, input, proxy) =
        match client_behind_proxy(&worker, &door, &client, peer, &deadline).await {
            Ok(Accepted { announced, extensions, rest }) => {
                let peer = announced.map_or(peer, |ends| ends.source);
                let destination = announced.map(|ends| ends.destination);
                let has_facts = announced.is_some() || extensions.is_some();
                let proxy = has_facts.then(|| Rc::new(ProxyFacts { destination, extensions }));
                (peer, rest, proxy)
            }
            Err(reason) => {
                door.dropped(reason);
                logged::log_unread(&worker, &door, peer, reason);
                client.reset_on_close();
                return None;
            }
        };
    let Some(entered) = door.view().limiter.enter(peer.ip()) else {
        door.dropped(Reason::ConnectionsLimited);
        logged::log_unread(&worker, &door, peer, Reason::ConnectionsLimited);
        client.reset_on_close();
        return None;
    };
    let tls = door.view().config.tls.as_ref().map(|tls| Arc::clone(tls.config()));
    let (mut input, mut refused, mut identity) = (input, None, None);
    if let Some(tls) = tls {
        let first = input.take();
        match handshake::accept(&worker, &door, &tls, &mut client, first, &deadline).await {
            Ok(()) => identity = client.certificate().and_then(|it| identity_lines(&door, &it)),
            Err(Refused::NotTls(first)) => {
                (input, refused) = (Some(first), Some(Reason::TlsMissing))
            }
            Err(Refused::Unused) => return None,
            Err(Refused::Failed(reason)) => {
                door.dropped(reason);
                logged::log_unread(&worker, &door, peer, reason);
                let idle = door.view().config.timeouts.idle;
                linger(&worker, &client, &deadline, idle, None, Rest::Unexpected).await;
                return None;
            }
        }
    }
    let hashes = ClientHashes::new(peer, door.view().config.listen);
    let mut connection =
        ClientConnection::new(worker, door, client, peer, hashes, Rc::new(deadline));
    (connection.input, connection.identity, connection.proxy) = (input, identity, proxy);
    if let Some(reason) = refused {
        connection.refuse_client(reason).await;
        return None;
    }
    if connection.door.view().config.http2 {
        match downstream::spoken(&mut connection).await {
            Spoken::Http1 => {}
            Spoken::Http2 => {
                // Boxed, so that a client's first bytes do not wait in the room for it.
                Box::pin(downstream::serve(connection)).await;
                return None;
            }
            Spoken::Nothing => return None,
        }
    }
    Some((connection, entered))
}

/// The header lines about the client's certificate, if the door asks for one.
fn identity_lines(door: &Door, certificate: &CertificateDer<'_>) -> Option<Rc<[u8]>> {
    let view = door.view();
    view.config.tls.as_ref().filter(|tls| tls.asks_clients())?;
    let ClientIdentity { subject, sha256 } = ClientIdentity::of(certificate);
    let lines =
        format!("X-Forwarded-Client-Subject: {subject}\r\nX-Forwarded-Client-SHA256: {sha256}\r\n");
    Some(lines.into_bytes().into())
}

/// Reads the PROXY header where the door requires one.
async fn client_behind_proxy(
    worker: &Worker,
    door: &Door,
    client: &Socket,
    sender: SocketAddr,
    deadline: &Deadline,
) -> Result<Accepted, Reason> {
    let view = door.view();
    if !view.config.accept_proxy {
        return Ok(Accepted { announced: None, extensions: None, rest: None });
    }
    if !view.config.trusted.contains(sender.ip()) {
        return Err(Reason::ProxyUntrusted);
    }
    let within = view.config.timeouts.header;
    proxy_protocol::accept(worker, client, deadline, within).await.map_err(Reason::from)
}

#[cfg(test)]
mod tests {
    fn future_bytes<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// Between two requests a connection has the room that its largest moment takes. The goal is
    /// 4,096 bytes for everything of a connection.
    #[test]
    fn a_connection_is_small() {
        let bytes = future_bytes(super::serve);
        assert!(bytes <= 3_500, "{bytes}");
    }
}
