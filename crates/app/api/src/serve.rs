//! Serves the API on its listeners.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use equipoise_admission::{Activity, Admission, Limits, Pass, Watched, bound_silence, source};
use equipoise_tls::ServerTls;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::admit::ANSWER_TIMEOUT;
use crate::answering::Mark;
use crate::api::Api;
use crate::auth::{ClientCertificate, Peer};
use crate::events::Stopping;
use crate::listen::{ApiTcp, ApiUnix};
use crate::tls::ApiTls;
use crate::{Operator, routes};

/// Largest number of connections of a listener.
const CONNECTIONS_MAX: usize = 128;
/// Smallest number, however few files the process may open.
const CONNECTIONS_MIN: usize = 4;
/// Divisor of the process's file descriptors: the session level leaves this part to the API,
/// checks, logs and other levels.
const RESERVE_PART: u64 = 16;
/// Smallest reserve that the session level leaves.
const RESERVE_MIN: u64 = 16;
/// Longest time until the bytes of an answer are acknowledged.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// Send buffer of a connection, in bytes (the kernel counts it twice). It bounds the data for a
/// client that does not read. Without a bound the kernel would keep megabytes, each of which costs
/// CPU time of the thread that also controls the data plane.
const SEND_BUFFER: usize = 64 << 10;
/// Longest time to receive a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest size of a request's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Pause after a failed accept, which usually means that there are no free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Serves on a unix socket until `stop` completes. Any user that may open the socket has all
/// rights.
///
/// # Errors
/// None at present.
pub async fn serve_unix<O: Operator>(
    listener: ApiUnix,
    api: Api<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (listener, _unlink_when_done) = listener.into_parts();
    serve(listener, connections_max(4), api, stop).await;
    Ok(())
}

/// Serves on TCP until `stop` completes. On loopback without TLS, only requests with a loopback
/// name are answered.
///
/// # Errors
/// The error of reading the listener's address.
pub async fn serve_tcp<O: Operator>(
    listener: ApiTcp,
    api: Api<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let loopback = listener.local_addr()?.ip().to_canonical().is_loopback();
    let (listener, tls) = listener.into_parts();
    let listener = Tcp { listener, loopback, tls };
    serve(listener, connections_max(2), api, stop).await;
    Ok(())
}

/// Largest number of connections of a listener: a part of the reserve of descriptors, within
/// bounds.
fn connections_max(part: u64) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let reserve = RESERVE_MIN.max(limit.unwrap_or(u64::MAX) / RESERVE_PART);
    let share = usize::try_from(reserve / part).unwrap_or(usize::MAX);
    share.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// The source of a connection, as [`Admission`] counts sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    User(u32),
    Address(IpAddr),
}

impl Source {
    fn of(peer: &Peer) -> Source {
        match peer {
            Peer::Unix { uid, .. } => Source::User(*uid),
            Peer::Tcp { address, .. } => Source::Address(source(address.ip())),
        }
    }
}

/// The API has no members: no connection becomes permanently trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NoMember {}

/// A listener that identifies its peers.
trait Accepts {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;

    /// TLS of its connections.
    fn tls(&self) -> Option<(Arc<ApiTls>, ServerTls)> {
        None
    }
}

impl Accepts for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&mut self) -> io::Result<(Self::Stream, Peer)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let of = stream.peer_cred()?;
        Ok((stream, Peer::Unix { uid: of.uid(), pid: of.pid() }))
    }
}

struct Tcp {
    listener: TcpListener,
    loopback: bool,
    tls: Arc<ApiTls>,
}

impl Accepts for Tcp {
    type Stream = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Stream, Peer)> {
        let (stream, address) = self.listener.accept().await?;
        bound_silence(&stream, SEND_TIMEOUT);
        // If the option is refused, the socket still works.
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        let loopback = self.loopback && self.tls.in_force().is_none();
        Ok((stream, Peer::Tcp { address, loopback }))
    }

    fn tls(&self) -> Option<(Arc<ApiTls>, ServerTls)> {
        Some((Arc::clone(&self.tls), self.tls.in_force()?))
    }
}

/// Serves connections. At the limit, a new connection replaces the one that has been silent
/// longest, of the source with the most connections. A connection that waits for its answer does
/// not count as silent; see [`Admission`].
async fn serve<O: Operator>(
    mut listener: impl Accepts,
    connections_max: usize,
    api: Api<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let router = routes::router(api.clone());
    let admission = Admission::new(Limits::without_members(connections_max));
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let Ok((pass, evicts)) = admission.enter(Source::of(&peer)) else {
                        api.gate().count_refused();
                        tracing::debug!(%peer, "no room for an API connection: all others are being answered");
                        continue;
                    };
                    if evicts.is_some() {
                        api.gate().count_evicted();
                    }
                    let activity = pass.activity();
                    let stream = Watched::new(stream, activity.clone());
                    let (router, stopped) = (router.clone(), stopped.clone());
                    let service = Connected { peer, activity, router, stopped };
                    match listener.tls() {
                        Some(tls) => {
                            let answered = encrypted(stream, tls, service, api.clone());
                            connections.spawn(admitted(pass, answered))
                        }
                        None => connections.spawn(admitted(pass, service.answer(stream, None))),
                    };
                    if evicts.is_some() {
                        // The evicted connection must close its descriptor first.
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an API connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut stop => break,
        }
    }
    drop(listener);
    drop(stopping);
    while connections.join_next().await.is_some() {}
}

/// Serves a connection until it ends or is evicted.
async fn admitted(pass: Pass<Source, NoMember>, answered: impl Future<Output = ()>) {
    tokio::select! {
        () = answered => {}
        () = pass.evicted() => tracing::debug!("an API connection made room for another"),
    }
}

/// Answers the requests of a connection after its handshake.
async fn encrypted<O: Operator>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (tls, in_force): (Arc<ApiTls>, ServerTls),
    connected: Connected,
    api: Api<O>,
) {
    match tls.accept(stream, Arc::clone(in_force.config())).await {
        Ok((stream, certificate)) => {
            connected.answer(stream, certificate.map(Arc::new)).await;
        }
        Err(error) => {
            api.gate().count_handshake();
            let peer = connected.peer;
            tracing::debug!(%peer, %error, "a TLS handshake of the API failed");
        }
    }
}

/// An accepted connection.
struct Connected {
    peer: Peer,
    activity: Activity,
    router: Router,
    stopped: watch::Receiver<()>,
}

impl Connected {
    /// Answers the requests. Once `stopped`, it only finishes the current answer. A connection
    /// without a request gets its first answer, because its client may have sent the request
    /// already: in an upgrade, no other process would answer it.
    async fn answer(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        certificate: Option<Arc<ClientCertificate>>,
    ) {
        let Connected { peer, activity, router, mut stopped } = self;
        let router = TowerToHyperService::new(router);
        let stopping = Stopping(stopped.clone());
        let was_asked = Arc::new(Notify::new());
        let asked = Arc::clone(&was_asked);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            asked.notify_one();
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(stopping.clone());
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(Arc::clone(certificate));
            }
            let mark = Mark::new(activity.clone(), ANSWER_TIMEOUT);
            let answer = router.call(request.map(|body| mark.body(body)));
            async move {
                let answer = answer.await as Result<Response, Infallible>;
                mark.clear();
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let must_end = async {
            // This also ends when the sender is dropped.
            let _ = stopped.changed().await;
            was_asked.notified().await;
        };
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = must_end => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "an API connection ended");
        }
    }
}
