//! Options of accepted TCP sockets.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Bounds how long the other side may be silent where the kernel expects an answer of it: sent bytes have to be acknowledged
/// within `within` (`TCP_USER_TIMEOUT`, which also ends a connection whose receiver is full for so long), keep-alive probes
/// begin after half of it. Small writes are sent at once.
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
