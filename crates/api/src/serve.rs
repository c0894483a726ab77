//! Serves the API on its listeners.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::api::Api;
use crate::auth::Peer;
use crate::listen::{ApiTcp, ApiUnix};
use crate::{Operator, routes};

/// Connections that are served at once, for each listener; others wait to be accepted.
const CONNECTIONS_MAX: usize = 128;
/// A request's head takes this long at the most.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// And is this large at the most.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// After accepting failed (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Serves on a unix socket until `stop` is done. Whoever may open that may ask anything.
///
/// # Errors
/// None at present.
pub async fn serve_unix<O: Operator>(
    listener: ApiUnix,
    api: Api<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (listener, _unlink_when_done) = listener.into_parts();
    serve(listener, routes::router(api), stop).await;
    Ok(())
}

/// Serves on TCP until `stop` is done. On loopback, only requests for a name of loopback are answered.
///
/// # Errors
/// What asking for the listener's address fails with.
pub async fn serve_tcp<O: Operator>(
    listener: ApiTcp,
    api: Api<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let loopback = listener.local_addr()?.ip().to_canonical().is_loopback();
    let listener = Tcp { listener: listener.into_inner(), loopback };
    serve(listener, routes::router(api), stop).await;
    Ok(())
}

/// Something that accepts connections and knows who is at their other end.
trait Accepts {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
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
}

impl Accepts for Tcp {
    type Stream = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Stream, Peer)> {
        let (stream, address) = self.listener.accept().await?;
        // Answers are small: waiting to fill a segment would only delay them.
        let _ = stream.set_nodelay(true);
        Ok((stream, Peer::Tcp { address, loopback: self.loopback }))
    }
}

async fn serve(
    mut listener: impl Accepts,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = Arc::clone(&room).acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        tokio::select! {
            (accepted, place) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let connection = answer(stream, peer, router.clone(), stopped.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the API cannot accept a connection");
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

/// Answers what comes over one connection; once `stopped`, only what is being answered.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let answer = router.call(request);
        async move { answer.await as Result<Response, Infallible> }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        // It ends when the sender is dropped.
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "an API connection ended");
    }
}
