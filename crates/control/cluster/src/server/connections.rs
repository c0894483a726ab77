//! Accepts connections, performs the TLS handshake, serves and ends them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::{Extension, Router};
use equipoise_admission::{Full, Pass, Watched, bound_silence, source};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::{Shared, routes};
use crate::{Certified, Name, Role};

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Content of its verified certificate; without one, a client may only join.
    pub(crate) certified: Option<Certified>,
}

/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Pause when accepting fails: without descriptors a retry at once would only use CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for requests in flight when the controller stops.
const GRACE: Duration = Duration::from_millis(500);

/// Accepts connections until it is stopped, and then ends open ones.
pub(crate) async fn accept(listener: TcpListener, config: Arc<ServerConfig>, shared: Arc<Shared>) {
    let router = routes::router(Arc::clone(&shared));
    let acceptor = TlsAcceptor::from(config);
    let mut stopping = shared.stopping.clone();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                shared.count("accept_failed");
                tracing::warn!(%error, "cannot accept a connection of the cluster");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match shared.admission.enter(source(address.ip())) {
            Ok((pass, evicts)) => {
                if let Some(full) = evicts {
                    shared.count(word(full));
                }
                let (acceptor, router, shared) =
                    (acceptor.clone(), router.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    serve(stream, address, pass, acceptor, router, &shared).await;
                });
            }
            Err(full) => shared.count(word(full)),
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, all).await.is_err() {
        connections.abort_all();
    }
}

/// The counter of connections that were refused or evicted for this reason.
fn word(full: Full) -> &'static str {
    match full {
        Full::Connections => "dropped_connections_max",
        Full::Unproven => "dropped_unproven_max",
        Full::Source => "dropped_unproven_by_address_max",
        Full::Member => "dropped_by_member_max",
    }
}

/// Serves a connection until it ends or has to make room for another.
async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    mut pass: Pass<IpAddr, Name>,
    acceptor: TlsAcceptor,
    router: Router,
    shared: &Arc<Shared>,
) {
    let limits = &shared.options.limits;
    bound_silence(&stream, limits.send_timeout);
    let stream = Watched::new(stream, pass.activity());
    let handshake = timeout(limits.handshake_timeout, acceptor.accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = pass.evicted() => return,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            shared.count("handshake_failed");
            tracing::debug!(%address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => return shared.count("handshake_timed_out"),
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certified = match shown.map(Certified::of).transpose() {
        Ok(certified) => certified,
        Err(error) => {
            shared.count("certificate_without_identity");
            tracing::warn!(%address, %error, "a peer was refused");
            return;
        }
    };
    let mut lifetime = limits.unproven_lifetime;
    if let Some(certified) = &certified {
        let identity = &certified.identity;
        if identity.cluster != *shared.authority.cluster() || identity.role == Role::Authority {
            shared.count("certificate_of_another_cluster");
            tracing::warn!(%address, %identity, "a peer was refused: not of this cluster");
            return;
        }
        if let Err(full) = pass.prove(&identity.name) {
            return shared.count(word(full));
        }
        // The connection ends with the certificate, so a node that does not renew is excluded.
        lifetime = certified.valid_until.duration_since(SystemTime::now()).unwrap_or_default();
    }
    let peer = Arc::new(Peer { address, certified });
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(64);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut stopping = shared.stopping.clone();
    let stopped = async {
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = sleep(lifetime) => return shared.count("connection_lifetime_over"),
        () = pass.evicted() => return,
        () = stopped => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() {
            shared.count("head_timed_out");
        }
        tracing::debug!(%address, %error, "a connection of the cluster ended");
    }
}
