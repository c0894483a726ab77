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
pub(crate) async fn serve(
    worker: Rc<Worker>,
    door: Rc<Door>,
    mut client: Socket,
    peer: SocketAddr,
) {
    let _task = worker.task();
    let _open = door.enter();
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    let (peer, input, proxy) =
        match Box::pin(client_behind_proxy(&worker, &door, &client, peer, &deadline)).await {
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
                return;
            }
        };
    let entered = door.view().limiter.enter(peer.ip());
    let Some(_entered) = entered else {
        door.dropped(Reason::ConnectionsLimited);
        logged::log_unread(&worker, &door, peer, Reason::ConnectionsLimited);
        client.reset_on_close();
        return;
    };
    let tls = door.view().config.tls.as_ref().map(|tls| Arc::clone(tls.config()));
    let (mut input, mut refused, mut identity) = (input, None, None);
    if let Some(tls) = tls {
        let accepted = handshake::accept(&worker, &door, &tls, &mut client, input, &deadline);
        input = None;
        match Box::pin(accepted).await {
            Ok(()) => identity = client.certificate().and_then(|it| identity_lines(&door, &it)),
            Err(Refused::NotTls(first)) => {
                (input, refused) = (Some(first), Some(Reason::TlsMissing))
            }
            Err(Refused::Unused) => return,
            Err(Refused::Failed(reason)) => {
                door.dropped(reason);
                logged::log_unread(&worker, &door, peer, reason);
                let idle = door.view().config.timeouts.idle;
                Box::pin(linger(&worker, &client, &deadline, idle, None, Rest::Unexpected)).await;
                return;
            }
        }
    }
    let hashes = ClientHashes::new(peer, door.view().config.listen);
    let mut connection =
        ClientConnection::new(worker, door, client, peer, hashes, Rc::new(deadline));
    (connection.input, connection.identity, connection.proxy) = (input, identity, proxy);
    if let Some(reason) = refused {
        return Box::pin(connection.refuse_client(reason)).await;
    }
    if connection.door.view().config.http2 {
        // Boxed, so that a connection of HTTP/1.1 does not hold the room for it.
        match Box::pin(downstream::spoken(&mut connection)).await {
            Spoken::Http1 => {}
            Spoken::Http2 => return Box::pin(downstream::serve(connection)).await,
            Spoken::Nothing => return,
        }
    }
    connection.run().await;
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
