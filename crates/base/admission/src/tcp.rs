//! Options of accepted TCP sockets.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Bounds the silence of a peer. Sent bytes must be acknowledged within `within`
/// (`TCP_USER_TIMEOUT`, which also ends a connection with a full receive window). Keep-alive probes
/// begin after half of it. Disables Nagle's algorithm.
pub fn bound_silence(stream: &TcpStream, within: Duration) {
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(within / 2).with_interval(within / 4);
    let set = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&probes))
        .and_then(|()| socket.set_tcp_user_timeout(Some(within)));
    if let Err(error) = set {
        tracing::debug!(%error, "a connection's options stay as they are");
    }
}
