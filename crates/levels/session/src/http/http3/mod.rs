//! HTTP/3 from clients (RFC 9114), experimental: each stream is a client connection of the HTTP/1.1
//! engine with one request, as with [`http2`](super::http2).
//!
//! `quinn` has QUIC. `h3` has the streams of the connection itself and QPACK ([`quic`]). Frames of
//! requests are read and written here ([`frames`], [`send`]), and pseudo-fields are checked
//! ([`pseudo`]).
//!
//! # Bounds
//! The first data-plane thread serves a front door's UDP socket. A connection serves at most
//! [`Limits::streams_max`] requests at once, including those that the client has reset. It holds
//! [`CONNECTION_WINDOW`] bytes of what the client sends and as many of what it has not
//! acknowledged, and a stream up to 96 KiB more.

mod body;
mod connection;
mod control;
mod frames;
mod pseudo;
mod quic;
mod request;
mod send;
mod stream;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use h3::error::Code;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Connecting, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, SendStream,
    ServerConfig, TokioRuntime, TransportConfig, VarInt,
};

use self::frames::code_of;
use super::http2::STREAM_WINDOW;
use super::http2::downstream::CONNECTION_WINDOW;
use super::logged::log_unread;
use crate::config::Limits;
use crate::deadline::Deadline;
use crate::door::Door;
use crate::limiter::Entered;
use crate::reason::Reason;
use crate::snapshot::FrontDoorView;
use crate::worker::{Phase, Worker};

/// Streams that a client may open beside its requests, at a time: three of HTTP/3, and reserved
/// ones.
const CONTROL_STREAMS: u32 = 8;

/// While more handshakes than this are under way, a client has to prove its address first.
const HANDSHAKES_RETRY: usize = 64;

/// No further handshake begins while this many are under way.
const HANDSHAKES_MAX: usize = 1024;

/// The longest time between packets to a silent client. Its own idle time-out may be shorter than
/// that of the front door: 30 s are common.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(10);

/// The largest decoded head. More fields than it can have would exceed what `http` can hold, and
/// `h3` does not check that.
const FIELD_BYTES_MAX: usize = 768 << 10;

/// The length of a field counts so many bytes more (RFC 9114, section 4.2.2).
const FIELD_OVERHEAD: usize = 32;

/// The largest decoded head of a request: SETTINGS_MAX_FIELD_SECTION_SIZE.
fn field_bytes_max(limits: &Limits) -> u64 {
    let bytes = limits.head_bytes_max + FIELD_OVERHEAD * limits.headers_max;
    bytes.min(FIELD_BYTES_MAX) as u64
}

/// The largest encoded head. Most are shorter than when they are decoded.
fn block_bytes_max(limits: &Limits) -> usize {
    limits.head_bytes_max + FIELD_OVERHEAD * limits.headers_max
}

fn reset(stream: &mut SendStream, code: Code) {
    // Fails if it has ended.
    let _ = stream.reset(code_of(code));
}

/// Serves a front door's UDP socket until the door closes.
pub(crate) async fn serve_door(
    worker: Rc<Worker>,
    door: Rc<Door>,
    socket: Arc<OwnedFd>,
) -> io::Result<()> {
    worker.begun().await;
    // Wakes this task when the configuration has changed.
    let _wake = Deadline::of_this_task(&worker.deadlines).await;
    let mut configured = Configured::new(&door)?;
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(ServerConfig::clone(&configured.config)),
        UdpSocket::from(socket.try_clone()?),
        Arc::new(TokioRuntime),
    )?;
    drop(socket);
    let handshakes = Rc::new(Cell::new(0));
    loop {
        let mut accepted = pin!(endpoint.accept());
        let incoming = poll_fn(|cx| match is_over(&worker, &door) {
            true => Poll::Ready(None),
            false => accepted.as_mut().poll(cx),
        })
        .await;
        let Some(incoming) = incoming else { break };
        configured.update(&door);
        if has_to_prove(&door, &incoming, handshakes.get()) {
            // Fails only if it has proved its address already.
            let _ = incoming.retry();
        } else if !worker.deadlines.is_memory_short()
            && let Some(entered) = enter(&door, &incoming, handshakes.get())
        {
            accept(&worker, &door, incoming, &configured.config, entered, &handshakes);
        } else {
            refuse(&worker, &door, incoming, handshakes.get());
        }
    }
    // Further clients get no answer: a successor's may come.
    endpoint.set_server_config(None);
    endpoint.wait_idle().await;
    Ok(())
}

fn is_over(worker: &Worker, door: &Door) -> bool {
    let is_on = door.view().config.http3.is_some();
    door.closing.get() || !is_on || worker.phase.get() != Phase::Running
}

/// Whether a client has to prove its address first (Retry, RFC 9000, section 8.1.2): while many
/// handshakes are under way, and where clients are counted by their addresses.
fn has_to_prove(door: &Door, incoming: &Incoming, handshakes: usize) -> bool {
    let is_busy = (HANDSHAKES_RETRY..HANDSHAKES_MAX).contains(&handshakes);
    let is_counted = handshakes < HANDSHAKES_MAX && !door.view().limiter.is_empty();
    (is_busy || is_counted) && !incoming.remote_address_validated() && incoming.may_retry()
}

/// Counts a client at the limits of its front door. `None`: it is not served.
fn enter(door: &Door, incoming: &Incoming, handshakes: usize) -> Option<Entered> {
    let view = door.view();
    let has_room = door.open.get() < view.config.limits.connections_max
        && handshakes < HANDSHAKES_MAX
        && (incoming.remote_address_validated() || handshakes < HANDSHAKES_RETRY);
    has_room.then(|| view.limiter.enter(incoming.remote_address().ip()))?
}

fn refuse(worker: &Worker, door: &Door, incoming: Incoming, handshakes: usize) {
    let view = door.view();
    let is_full = door.open.get() >= view.config.limits.connections_max
        || handshakes >= HANDSHAKES_MAX
        || worker.deadlines.is_memory_short();
    match is_full {
        true => door.stats(|stats| stats.accept_pauses.add(1)),
        false => {
            door.dropped(Reason::ConnectionsLimited);
            log_unread(worker, door, incoming.remote_address(), Reason::ConnectionsLimited);
        }
    }
    incoming.refuse();
}

/// Has a task serve a client.
fn accept(
    worker: &Rc<Worker>,
    door: &Rc<Door>,
    incoming: Incoming,
    config: &Arc<ServerConfig>,
    entered: Entered,
    handshakes: &Rc<Cell<usize>>,
) {
    let peer = incoming.remote_address();
    // Fails if its first packet is malformed.
    let Ok(connecting) = incoming.accept_with(Arc::clone(config)) else {
        return door.dropped(Reason::TlsHandshake);
    };
    let (worker, door, handshakes) = (Rc::clone(worker), Rc::clone(door), Rc::clone(handshakes));
    handshakes.set(handshakes.get() + 1);
    tokio::task::spawn_local(async move {
        let _task = worker.task();
        let (_open, _entered) = (door.enter(), entered);
        let met = meet(&door, connecting).await;
        handshakes.set(handshakes.get() - 1);
        match met {
            Ok(quic) => connection::serve(&worker, &door, quic, peer).await,
            Err(reason) => {
                door.dropped(reason);
                log_unread(&worker, &door, peer, reason);
            }
        }
        // The task of QUIC sends the close, before this thread may end.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    });
}

/// Performs the handshake.
async fn meet(door: &Door, connecting: Connecting) -> Result<quinn::Connection, Reason> {
    let within = door.view().config.timeouts.header;
    match tokio::time::timeout(within, connecting).await {
        Ok(Ok(quic)) => {
            door.stats(|stats| stats.tls_handshakes.add(1));
            Ok(quic)
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake of QUIC failed");
            Err(match error {
                ConnectionError::TransportError(_) | ConnectionError::ConnectionClosed(_) => {
                    Reason::TlsHandshake
                }
                _ => Reason::ClientGone,
            })
        }
        Err(_) => Err(Reason::TlsTimeout),
    }
}

/// The configuration of QUIC, from that of the front door.
struct Configured {
    view: Arc<FrontDoorView>,
    config: Arc<ServerConfig>,
}

impl Configured {
    fn new(door: &Door) -> io::Result<Configured> {
        let view = Arc::clone(&door.view());
        let config = Arc::new(configure(&view)?);
        Ok(Configured { view, config })
    }

    /// Follows a change, such as that of a certificate.
    fn update(&mut self, door: &Door) {
        let view = Arc::clone(&door.view());
        if !Arc::ptr_eq(&view, &self.view) {
            // The options of TLS do not change, so this cannot fail.
            if let Ok(config) = configure(&view) {
                self.config = Arc::new(config);
            }
            self.view = view;
        }
    }
}

fn configure(view: &FrontDoorView) -> io::Result<ServerConfig> {
    let config = &view.config;
    let tls = config.tls.as_ref().map(|tls| tls.http3());
    let tls = tls.ok_or_else(|| io::Error::other("HTTP/3 needs `tls`"))?;
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let streams = u32::try_from(config.limits.streams_max).unwrap_or(u32::MAX);
    let idle = config.timeouts.idle;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(CONTROL_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        .datagram_receive_buffer_size(None)
        // A silent client is noticed so. A response may take longer, so this side keeps the
        // connection: the task of the connection closes it when it has had no request for long.
        .max_idle_timeout(IdleTimeout::try_from(idle).ok())
        .keep_alive_interval(Some((idle / 3).min(KEEP_ALIVE_MAX)));
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server.transport_config(Arc::new(transport));
    Ok(server)
}
